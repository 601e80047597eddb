"""Texts that stay as they are: what other programs read, or users type. Delete a file and run its test to renew it."""

from support import TESTS


def same_as_golden(name: str, text: str) -> bool:
    """Whether the text is that of the file in `tests/golden`, which is written if there is none."""
    path = TESTS / "golden" / name
    if not path.exists():
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), f"if it is meant: rm {path}, and run it again"
    return True
