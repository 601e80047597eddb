"""Runs a compiler with limits of time, memory, disk and visibility, and ends every process that it started.

Compilers crash, hang, fill disks and are given models of strangers. `process.run` is the one way to start one: a
supervisor in a process of its own enforces the limits, and `confine` shows it only what it needs of this machine.
"""
