"""How far compilers, and processes that read models, can be isolated on this machine."""

import json
import sys
import tempfile
from enum import StrEnum
from functools import cache
from pathlib import Path

from onnxbisect_backends.contract import Confinement, Limits
from onnxbisect_backends.sandbox.confined_view import confined_view
from onnxbisect_backends.sandbox.process import run

_CONFINE = Path(__file__).with_name("confine.py")


class Isolation(StrEnum):
    """How far a compile, and the process that reads its model, are isolated from the machine."""

    #: They have limits, are killed with all their children, and see what their user sees.
    NONE = "none"
    #: They see their own processes, no network, and of the disk only installed programs and their work directories.
    NAMESPACES = "namespaces"


#: Run by a confined Python without packages, to check nested confinement. Arguments: `confine.py`, a view.
_INSIDE = """
import json, os, sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
confine = ModuleType("confine")
SourceFileLoader("confine", sys.argv[1]).exec_module(confine)
status = confine.fork_confined(json.loads(sys.argv[2]), network=False)
os._exit(1 if status else 0)
"""


@cache
def available() -> Isolation:
    """The isolation that the kernel allows, found by trying: sysctls, AppArmor and seccomp affect it.

    In Docker it is mostly `none`, unless the container has additional rights. A confined process must be able to
    confine another one, because the process that reads a model starts compilers.
    """
    if sys.platform != "linux":
        return Isolation.NONE
    with tempfile.TemporaryDirectory() as folder:
        confinement = Confinement(workdir=Path(folder))
        limits = Limits(seconds=30, confinement=confinement)
        seen = confined_view(confinement, [sys.executable], cwd=Path(folder), env={}, reads=())
        argv = [sys.executable, "-I", "-S", "-c", _INSIDE, str(_CONFINE), json.dumps(seen)]
        outcome = run(argv, cwd=Path(folder), env={}, limits=limits)
    return Isolation.NAMESPACES if outcome.exit_code == 0 else Isolation.NONE
