"""Runs a compiler within bounds of time, memory, disk and sight, and ends every process that it started."""
