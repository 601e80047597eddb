"""Processes of a test."""

from pathlib import Path


def survivors(folder: Path) -> dict[int, str]:
    """Command lines of processes that name a test's folder, or work in it, by their ids."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            within = str(folder) in line or (process / "cwd").readlink().is_relative_to(folder)
        except OSError:
            continue
        if within:
            found[int(process.name)] = line
    return found
