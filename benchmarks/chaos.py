"""Jobs on the production topology while its parts are killed at random: does every job end right, and what did it cost?

    make chaos

writes docs/reliability.md. It takes about ten minutes on two cores; `--jobs 20 --kills 5` is an impression of it.
"""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from platform import python_version

import tables
from support.production.chaos_embedded import EmbeddedResult, EmbeddedRun
from support.production.chaos_run import Result, Run

#: Seconds between two kills of the embedded service, on average: often it has just begun to do something.
_KILL_EVERY = 2.0


def main() -> None:
    """Run the storm; exit status 1 where something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="decides what is asked for, and what is killed next")
    parser.add_argument(
        "--kill-every", type=float, default=3.0, metavar="S", help="seconds between two kills, on average"
    )
    parser.add_argument("--kills", type=int, default=40, help="of the embedded service, while it has as many jobs")
    parser.add_argument("--seconds", type=float, default=3600.0, help="the longest that it may take")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the numbers into this document")
    given = parser.parse_args()
    document = given.write.read_text() if given.write else ""
    with tempfile.TemporaryDirectory(prefix="onnx-bisect-chaos-") as folder:
        run = Run(
            folder=Path(folder), jobs=given.jobs, seed=given.seed, kill_every=given.kill_every, seconds=given.seconds
        )
        result = run()
    with tempfile.TemporaryDirectory(prefix="onnx-bisect-chaos-") as folder:
        count, seconds = given.kills, given.seconds
        alone = EmbeddedRun(
            folder=Path(folder), jobs=count, kills=count, seed=given.seed, kill_every=_KILL_EVERY, seconds=seconds
        )()
    complaints = [*result.complaints, *alone.complaints]
    blocks = {
        **{"setup": _setup(run), "killed": _killed(result), "counted": _counted(result)},
        **{"embedded": _embedded(alone), "verdict": _verdict(complaints)},
    }
    if given.write and not complaints:
        given.write.write_text(tables.fill(document, blocks))
        print(f"wrote {given.write}", file=sys.stderr)
    else:
        print("\n\n".join(blocks.values()))
    sys.exit(1 if complaints else 0)


def _setup(run: Run) -> str:
    return (
        f"{run.jobs} jobs, seed {run.seed}, a kill every {run.kill_every:g} seconds on average; PostgreSQL, redis, the "
        f"API, a control worker and {run.workers} workers on {os.cpu_count()} cores, Python {python_version()}."
    )


def _killed(result: Result) -> str:
    return tables.table(["killed", "times"], [*result.killed.most_common(), ("together", result.killed.total())])


def _counted(result: Result) -> str:
    rows = [("seconds until the last job had ended", f"{result.seconds:.0f}"), *result.counted.items()]
    return tables.table(["what happened", ""], rows)


def _embedded(result: EmbeddedResult) -> str:
    rows = [
        ("jobs", result.jobs),
        ("kills of the whole service", result.kills),
        ("seconds until the last job had ended", f"{result.seconds:.0f}"),
        ("probes lost and repeated", result.questions),
        ("runs of the coordinator", result.turns),
        ("jobs whose reports are those of `run`", result.right),
    ]
    return tables.table(["what happened", ""], rows)


def _verdict(complaints: Sequence[str]) -> str:
    if not complaints:
        return "Everything held."
    return "\n".join(["What did not hold:", "", *(f"- {complaint}" for complaint in complaints)])


if __name__ == "__main__":
    # whoever ends it, nothing is left behind
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    main()
