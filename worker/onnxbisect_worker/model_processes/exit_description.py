"""How a process ended, in the words of a sentence."""

import signal

_LONGEST = 300
#: Signals that a process does not send itself, but people, and systems that stop.
_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def from_outside(code: int | None) -> bool:
    """Whether somebody else ended the process, or the kernel for want of memory (`onnxbisect_backends.sandbox.oom`)."""
    return code is not None and -code in _OUTSIDE


def exit_description(code: int, printed: bytes) -> str:
    """What follows "The process ...": of what it returned, as `Popen.returncode` has it, and its last words."""
    last = [line for line in printed.decode(errors="replace").splitlines() if line.strip()][-1:]
    how = f"was killed by {_name(-code)}" if code < 0 else f"ended with exit code {code}"
    if code == -signal.SIGKILL:
        how += ", perhaps because the machine ran out of memory"
    said = f"; its last words were: {_printable(last[0])}" if last else ""
    return f"{how}{said}."


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _printable(line: str) -> str:
    return "".join(character if character.isprintable() else " " for character in line).strip()[:_LONGEST].rstrip(".")
