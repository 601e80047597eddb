"""`onnx-bisect regress` as it is typed; tests/library/test_regress.py has what it finds."""

import pytest

from support.cli.command_line import CASES, Shell

C1 = str(CASES / "c1_chain100_1bad.onnx")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--backend", "openvino", "--versions", "2026.4.1"], "--versions '2026.4.1' is not FIRST..LAST."),
        (
            ["--backend", "whitelist", "--option", "deny=Relu", "--versions", "1..2"],
            "'whitelist' is no compiler of which 'onnx-bisect backends install' makes versions.",
        ),
    ],
)
def test_a_mistake_is_a_sentence(shell: Shell, arguments: list[str], sentence: str) -> None:
    done = shell.call("regress", C1, *arguments)
    assert done.code == 2
    assert done.sentence() == sentence
