"""What requests ask for in their headers."""

import pytest
from starlette.requests import Request

from onnxbisect.language import CHINESE, ENGLISH
from onnxbisect_api.parameters import language_of, weighed


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", CHINESE),
        ("en-US,en;q=0.9,zh;q=0.8", ENGLISH),
        ("fr, zh-Hans;q=0.5", CHINESE),
        ("fr", ENGLISH),
        ("zh;q=0, en", ENGLISH),
        ("zh;q=much", ENGLISH),
        ("", ENGLISH),
    ],
)
def test_a_browser_names_the_language(header: str, expected: str) -> None:
    assert language_of(Request({"type": "http", "headers": [(b"accept-language", header.encode())]})) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", []),
        ("gzip, br;q=0.5", [("gzip", 1.0), ("br", 0.5)]),
        ("a;q=0.1, B ; level=1; q=0.9,,", [("b", 0.9), ("a", 0.1)]),
        ("a;q=0, b;q=x, c", [("c", 1.0), ("a", 0.0)]),
    ],
)
def test_the_most_wanted_is_first(header: str, expected: list[tuple[str, float]]) -> None:
    assert weighed(header) == expected
