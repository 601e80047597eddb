"""Reads the user's own configuration file for `pulsar2 build`: json, yaml, toml or prototxt, as pulsar2 does."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from onnxbisect.errors import OptionError
from onnxbisect_backends.options import reason, unknown
from onnxbisect_backends.vendors.pulsar2 import prototxt
from onnxbisect_backends.vendors.pulsar2.schema import BuildConfig

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(_STRING + r"|//[^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(_STRING + r"|,(?=\s*[}\]])")


def read_config(path: Path) -> dict[str, Any]:
    """The file's content, not yet validated; raises OptionError."""
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        raise OptionError(f"{unknown('ending of a pulsar2 configuration file', path.suffix, _PARSERS)}")
    try:
        data = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"The pulsar2 configuration {path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, yaml.YAMLError) as error:  # UnicodeDecodeError and all parsers' own but yaml's are ValueErrors
        words = reason(" ".join(str(error).split()))
        raise OptionError(f"The pulsar2 configuration {path} cannot be parsed: {words}.") from None
    if not isinstance(data, dict):
        raise OptionError(f"The pulsar2 configuration {path} holds no fields but {type(data).__name__}.")
    return data


def lenient_json(text: str) -> Any:
    """JSON with `//` and `#` comments and trailing commas, as pulsar2's own examples have them.

    Blanks replace the removed text, so that error messages name the right position.
    """
    text = _COMMENT.sub(lambda match: match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0]), text)
    return json.loads(_TRAILING_COMMA.sub(lambda match: match[0] if match[0].startswith('"') else " ", text))


_PARSERS: dict[str, Callable[[str], Any]] = {
    ".json": lenient_json,
    ".yaml": yaml.safe_load,
    ".yml": yaml.safe_load,
    ".toml": tomllib.loads,
    ".prototxt": lambda text: prototxt.parse(text, BuildConfig, "pulsar2.build"),
}
