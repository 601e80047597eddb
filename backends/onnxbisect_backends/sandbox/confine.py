"""Shows a process only a part of the machine: a compiler, or the process that reads a model.

`supervise.py` loads this file before any package can be imported, and calls `enter`, `run_as_init` and
`give_up_rights` before it executes a compiler. `fork_confined` does all of that for a process that executes nothing.

The process gets namespaces of its own: of processes, so that it sees and signals no others; of the network, unless it
needs one; and of mounts, where everything but its work directory is read-only and private folders are empty. This needs
no privilege if the kernel allows user namespaces, and the process has none when it starts. It is what systemd's
ProtectSystem=strict, ProtectHome and PrivateTmp do for a service.

A confined process can confine its children in nested namespaces: a user namespace needs no privileges, and
`no_new_privs` does not forbid it. A process that reads a model starts compilers that way.
"""

import contextlib
import ctypes
import os
import select
import signal
import stat
import struct
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 1 << 12, 1 << 14, 1 << 18
SYS_MOUNT_SETATTR = 442  # the same on all architectures; since Linux 5.12
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID = 1, 2
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
LAST_CAPABILITY = 63
NOBODY = 65534
LINUX_CAPABILITY_VERSION_3 = 0x20080522
SIOCSIFFLAGS = 0x8914
IFF_UP = 1

#: Visible devices: basic ones, and accelerators that some compilers use.
DEVICES = ("null", "zero", "full", "random", "urandom", "dri", "kfd")
ACCELERATOR = "nvidia"
#: Bytes of memory for files outside the work directory.
TEMPORARY = 1 << 30

_libc = ctypes.CDLL(None, use_errno=True)


def demand(outcome: int, what: str) -> None:
    """Raise OSError, with `what` in its text, if a system call failed."""
    if outcome != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def enter(*, network: bool) -> None:
    """Move to new user and IPC namespaces, and without `network` to a new network namespace. Raises OSError.

    The next child is the first process of a new process namespace.
    """
    me = os.geteuid(), os.getegid()
    wanted = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWIPC | (0 if network else CLONE_NEWNET)
    demand(_libc.unshare(wanted), "namespaces")
    stay(*me)
    if not network:
        loopback()


def fork_confined(view: dict[str, Any], *, network: bool) -> int | None:
    """Fork this process, which must have one thread. Returns None in the child, which is confined.

    The child's working directory is the folder `own`, and its descriptors must not refer to folders. This process waits
    for it, and returns its wait status once all processes of its namespaces are gone. Killing this process kills them,
    too. Raises OSError if the kernel refuses the namespaces; if it refuses the mounts, the child says so on standard
    error and exits with 1.
    """
    parent = os.getppid()
    enter(network=network)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # entering the namespaces has reset it
    if os.getppid() != parent:
        os._exit(1)
    alive, living = os.pipe()
    told, tell = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(living)
        os.close(told)
        try:
            run_as_init(view, alive, tell)
            os.close(alive)
            os.close(tell)
            os.chdir(view["own"])
            give_up_rights()
        except OSError as error:
            os.write(2, f"could not be isolated: {error.strerror}\n".encode(errors="replace"))
            os._exit(1)
        return None
    os.close(alive)
    os.close(tell)
    status = os.read(told, 4)
    # its namespace ends with the first process, which reports nothing if it was killed
    _, ended = os.waitpid(first, 0)
    return int.from_bytes(status, "little") if status else ended


def leave_network() -> None:
    """Move to a network namespace with loopback only, if possible: directly as root, else as root of a new namespace.

    Files, users and groups stay the same. Changes of namespace reset PR_SET_PDEATHSIG, so this comes before it.
    """
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(CLONE_NEWNET) != 0:
        # a root without this right could not be root in a new namespace either, but only the user `nobody`
        if user == 0 or _libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            return
        with contextlib.suppress(OSError):
            stay(user, group)
    loopback()


def stay(user: int, group: int) -> None:
    """Keep user and group ids in a new user namespace. Raises OSError.

    Root becomes the user `nobody`, because a root without capabilities cannot be mapped in a nested namespace.
    """
    users, groups = f"{user or NOBODY} {user} 1", f"{group or NOBODY} {group} 1"
    for name, text in (("setgroups", "deny"), ("uid_map", users), ("gid_map", groups)):
        with open(f"/proc/self/{name}", "w") as table:  # noqa: PTH123 - pathlib is slow to import
            table.write(text)


def loopback() -> None:
    """Enable the loopback interface, which tools with several processes use."""
    import _socket  # socket imports too much, and few processes need it
    import fcntl

    with contextlib.suppress(OSError):
        inside = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
        fcntl.ioctl(inside.fileno(), SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))
        inside.close()


def run_as_init(view: dict[str, Any], alive: int, ended: int) -> None:
    """Arrange the mounts, and fork; returns only in the child, which executes the compiler.

    The first process of a namespace ignores most signals, including its own aborts, and inherits all orphans, so the
    compiler must not be the first. `alive` becomes readable when the supervisor is gone; `ended` receives the
    compiler's wait status. When this process ends, the kernel kills the rest of its namespace.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    watch = select.poll()
    watch.register(alive, select.POLLIN)
    if watch.poll(0):  # the supervisor died before; getppid() cannot tell, as it is 0 in the namespace
        os._exit(1)
    arrange(view)
    compiler = os.fork()
    if compiler == 0:
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.dup2(ended, 0)
    os.closerange(1, 1 << 10)
    while True:
        pid, status = os.wait()
        if pid == compiler:
            os.write(0, status.to_bytes(4, "little"))
            os._exit(0)


def arrange(view: dict[str, Any]) -> None:
    """Set up the mounts: all read-only, `hidden` and `temporary` folders empty, the latter writable.

    `shown` paths stay visible, and so does the folder `own`, writable. Must run in the first process, whose `/proc` is
    mounted, too.
    """
    demand(_libc.unshare(CLONE_NEWNS), "mounts")
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    # folders that will be covered are first opened, so that they stay reachable
    devices = [f"/dev/{name}" for name in os.listdir("/dev") if name in DEVICES or name.startswith(ACCELERATOR)]  # noqa: PTH208 - pathlib is slow to import
    held = [(path, os.open(path, os.O_PATH)) for path in [*devices, *view["shown"]] if os.path.exists(path)]  # noqa: PTH110 - as above
    own = os.open(view["own"], os.O_PATH)
    attributes("/", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, flags=AT_RECURSIVE)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for path in view["temporary"]:
        cover(path, TEMPORARY, 0o1777)
    closed = [path for path in sorted(["/dev", *view["hidden"]], key=len) if cover(path, 1 << 20, 0o755)]
    os.mkdir("/dev/shm")  # noqa: PTH102, S108 - as above
    cover("/dev/shm", TEMPORARY, 0o1777)  # noqa: S108 - empty, and nobody else's
    for path, descriptor in held:
        if not same(path, descriptor):
            uncover(path, descriptor)
    uncover(view["own"], own)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"/dev/{name}")  # noqa: PTH211 - as above
    os.symlink("/proc/self/fd", "/dev/fd")  # noqa: PTH211 - as above
    for path in closed:
        attributes(path, MOUNT_ATTR_RDONLY)
    attributes(view["own"], 0, clear=MOUNT_ATTR_RDONLY)
    for descriptor in (own, *(descriptor for _, descriptor in held)):
        os.close(descriptor)  # an open folder would give access to its covered parents


def cover(path: str, size: int, mode: int) -> bool:
    """Mount an empty folder over a folder; False if there is none."""
    if not os.path.isdir(path):  # noqa: PTH112 - as above
        return False
    mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode:o},size={size}")
    return True


def same(path: str, held: int) -> bool:
    """Whether the path still refers to the file or folder of the open descriptor `held`."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(held))  # noqa: PTH116 - as above
    except OSError:
        return False


def uncover(path: str, held: int) -> None:
    """Bind-mount the file or folder of the open descriptor `held` at the path."""
    folder = stat.S_ISDIR(os.fstat(held).st_mode)
    os.makedirs(path if folder else os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - as above
    if not folder:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    mount(f"/proc/self/fd/{held}", path, None, MS_BIND | MS_REC)


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """mount(2)."""
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    demand(_libc.mount(*words, ctypes.c_ulong(flags), options.encode()), f"mount {target}")


def attributes(path: str, given: int, *, clear: int = 0, flags: int = 0) -> None:
    """mount_setattr(2), which changes one mount, and with AT_RECURSIVE those below it."""
    wanted = struct.pack("QQQQ", given, clear, 0, 0)
    number = ctypes.c_long(SYS_MOUNT_SETATTR)
    demand(
        _libc.syscall(number, AT_FDCWD, os.fsencode(path), ctypes.c_uint(flags), wanted, ctypes.c_size_t(len(wanted))),
        f"mount_setattr {path}",
    )


def give_up_rights() -> None:
    """Drop all capabilities, also for root and for every program executed later."""
    for number in range(LAST_CAPABILITY + 1):
        if _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            break  # no further capabilities
    demand(_libc.capset(struct.pack("Ii", LINUX_CAPABILITY_VERSION_3, 0), bytes(24)), "capabilities")
    demand(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
