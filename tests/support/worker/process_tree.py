"""Who descends from whom, as the system says it, and who has ended."""

import time
from collections.abc import Callable
from pathlib import Path


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end while it is read
        return True


def within(seconds: float, what: Callable[[], bool]) -> bool:
    """Whether it comes true; the seconds are those of a slow machine, not what it should take."""
    give_up = time.monotonic() + seconds
    while not what():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.02)
    return True


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def servers_of(pid: int) -> list[int]:
    """The fork servers among the children; a process that runs tests has others, too."""
    return [child for child in children(pid) if "model_processes.server" in command_of(child)]


def keepers_of(pid: int) -> list[int]:
    """The children of the fork servers among the children."""
    return [keeper for server in servers_of(pid) for keeper in children(server)]


def hosts_of(pid: int) -> list[int]:
    """The model processes: the children of the keepers."""
    return [host for keeper in keepers_of(pid) for host in children(keeper)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:  # it has gone
        return ""


def is_privileged() -> bool:
    """Whether the kernel takes any change of scheduling from this process (CAP_SYS_ADMIN)."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return any(line.startswith("CapEff:") and int(line.split()[1], 16) >> 21 & 1 for line in lines)
