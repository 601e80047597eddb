"""NVIDIA Polygraphy on a case: `polygraphy debug reduce`, once, and rerun as an ideal user would.

The ideal user knows which nodes of the reduced model are to blame, has the compiler take them for supported, and
starts again until the model compiles. Nobody can do that without knowing the truth: it is the best that
rerunning can come to.
"""

import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import onnx

from cases import Case, Nodes, named

_PROGRAM = Path(sys.executable).with_name("polygraphy")
#: The exit status of a mistake on our side.
_USAGE = 2
#: Polygraphy's name for a model under check, in the directory that it was started in.
_UNDER_CHECK = "polygraphy_debug.onnx"


@dataclass(frozen=True, kw_only=True)
class Reduced:
    """One run. `checks` are compiler calls; `nodes` those left over, None where there is no reduced model.

    `trouble` says why not, in Polygraphy's words or ours.
    """

    checks: int
    nodes: Nodes | None
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """All runs of the ideal user: checks altogether and the true culprits that were found."""

    first: Reduced
    checks: int
    found: frozenset[Nodes]


def missing() -> str | None:
    """A sentence where Polygraphy cannot be asked here."""
    try:
        version("onnx-graphsurgeon")
    except PackageNotFoundError:
        return "onnx-graphsurgeon, without which Polygraphy cannot reduce a model, is not installed: see `make bench`."
    return None if _PROGRAM.exists() else "Polygraphy is not installed: see `make bench`."


def installed_version() -> str:
    """As pip knows it."""
    return version("polygraphy")


def reduce_once(case: Case, mode: str, seconds: float, ignore: tuple[str, ...] = ()) -> Reduced:
    """`polygraphy debug reduce --mode MODE`, ended after so many seconds; `ignore` are nodes taken for supported."""
    folder = Path(tempfile.mkdtemp(prefix="onnx-bisect-bench-"))
    try:
        log, reduced = folder / "calls.jsonl", folder / "reduced.onnx"
        # In a script, for Polygraphy takes the check's own options for abbreviations of its own.
        (folder / "check.sh").write_text(f"exec {shlex.join(case.check(_UNDER_CHECK, log, ignore))}\n")
        command = [str(_PROGRAM), "debug", "reduce", str(case.model), "-o", str(reduced), "--mode", mode]
        trouble = ""
        try:
            done = subprocess.run(
                [*command, "--check", "sh", "check.sh"],
                cwd=folder,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                timeout=seconds,
            )
            if done.returncode == _USAGE:
                raise RuntimeError(f"Polygraphy does not understand its command line: {done.stderr.strip()}")
            if done.returncode:
                trouble = "crashes"
        except subprocess.TimeoutExpired:
            trouble = f"not done in {seconds:.0f} s"
        checks = len(log.read_text().splitlines()) if log.exists() else 0
        if trouble or not reduced.exists():
            return Reduced(checks=checks, nodes=None, trouble=trouble)
        nodes = tuple(node.name for node in onnx.load(reduced, load_external_data=False).graph.node)
        return Reduced(checks=checks, nodes=nodes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rerun(case: Case, mode: str, seconds: float) -> Rerun:
    """Compile the whole model; while it fails, run again with what is found taken for supported.

    Ends also where nothing that a run left over is a culprit.
    """
    first: Reduced | None = None
    checks = 0
    found: list[Nodes] = []
    while True:
        ignored = tuple(dict.fromkeys(name for nodes in found for name in nodes))
        checks += 1
        if first is not None and _compiles(case, ignored):
            break
        run = reduce_once(case, mode, seconds, ignored)
        first = first or run
        checks += run.checks
        new = [nodes for nodes in named(run.nodes or (), case.truth) if nodes not in found]
        if not new:
            break
        found += new
    return Rerun(first=first, checks=checks, found=frozenset(found))


def _compiles(case: Case, ignore: tuple[str, ...]) -> bool:
    with tempfile.TemporaryDirectory(prefix="onnx-bisect-bench-") as folder:
        command = case.check(str(case.model), Path(folder) / "calls.jsonl", ignore)
        return subprocess.run(command, stdin=subprocess.DEVNULL).returncode == 0
