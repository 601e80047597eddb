"""`onnx-bisect profile`: turns reports of runs on a compiler into a profile for `whitelist`."""

from collections.abc import Sequence
from pathlib import Path

from onnxbisect.errors import OptionError
from onnxbisect.report.text import clean, plural
from onnxbisect_backends.measurement.recorded import recorded_profile
from onnxbisect_backends.simulator.profiles import profile_text
from onnxbisect_cli.reports import read


def write(reports: Sequence[Path], output: Path) -> None:
    """Write the profile; raises OptionError for a bad report or output path."""
    if output.suffix != ".toml" or not output.parent.is_dir():
        raise OptionError(f"{output} cannot be a profile: name a file that ends in .toml in a folder that is.")
    profile = recorded_profile(output.stem, {str(path): read(path) for path in reports})
    try:
        output.write_text(profile_text(profile, command="profile"), encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{output} cannot be written: {error.strerror or error}.") from error
    supported = len(profile.ops) - 1  # all but Constant, which every profile has
    print(clean(f"{output}: {plural(supported, 'op')} supported as far as seen, {len(profile.refused)} refused"))
    for note in profile.notes:
        print(clean(f"  {note}"))
