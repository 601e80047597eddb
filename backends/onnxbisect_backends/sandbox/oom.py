"""What the kernel reports about processes that it killed because memory ran out."""

from pathlib import Path


def oom_kills() -> int:
    """How many the kernel has killed since it started, for this machine's memory or for that of a container; always 0
    where it does not count them. One that ended by SIGKILL while this grew was most likely killed for that; one that
    did so while it stayed the same was killed by somebody.
    """
    try:
        counters = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in counters.splitlines() if line.startswith("oom_kill ")), 0)
