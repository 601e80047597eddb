"""Runs a compiler with limits of time, memory, disk and visibility, and ends every process that it started."""
