"""Files of others are what their VENDOR.md says: as they were published, from where, under which licence."""

import hashlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ["api/onnxbisect_api/site/static/vendor", "tests/site/vendor"]
_ROW = re.compile(r"\| (?P<name>\S+) \| npm `[\w.-]+@[\d.]+`, `\S+` \| [\w.-]+ \| `(?P<sha256>[0-9a-f]{64})` \|")


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_is_listed_and_is_as_it_was_published(folder: str) -> None:
    listed = {row["name"]: row["sha256"] for row in _ROW.finditer((ROOT / folder / "VENDOR.md").read_text())}
    there = {path.name: path for path in (ROOT / folder).iterdir() if path.name != "VENDOR.md"}
    assert listed == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in there.items()}
    assert listed


def test_no_other_folder_has_files_of_others() -> None:
    found = {
        str(path.parent.relative_to(ROOT))
        for root in ("api", "bisect", "cli", "tests", "worker")
        for path in (ROOT / root).rglob("*.min.js")
    }
    assert found == set(FOLDERS)
