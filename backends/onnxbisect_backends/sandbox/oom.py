"""The kernel's count of processes killed for lack of memory."""

from pathlib import Path


def oom_kills() -> int:
    """The number of processes killed for lack of memory of the machine or a container; 0 if the kernel does not count.

    A process that ended by SIGKILL while this count grew was most likely killed for that; otherwise another process
    killed it.
    """
    try:
        counters = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in counters.splitlines() if line.startswith("oom_kill ")), 0)
