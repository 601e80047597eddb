"""Writes a profile as TOML: deterministic, readable and good to diff."""

import json

from onnxbisect.report.text import clean
from onnxbisect_backends.simulator.profiles import Profile

#: Longer lists have one item on each line.
_WIDE = 100

#: The order of fields in an inline table; other fields follow.
_ORDER = ("kind", "name", "rule", "value", "variant")


def profile_text(profile: Profile, *, command: str = "op-table") -> str:
    """The text. Defaults are left out; ops with constraints have tables of their own."""
    fields = profile.model_dump(mode="json", exclude_defaults=True)
    ops, refused = fields.pop("ops", {}), fields.pop("refused", {})
    short = {op: entry for op, entry in ops.items() if not {"constraints", "refuses"} & entry.keys()}
    lines = [f"# Written by onnx-bisect {command}.", ""]
    lines += [f"{key} = {_lines(value)}" for key, value in fields.items()]
    lines += ["", "[ops]", *(f"{_key(op)} = {_inline(entry)}" for op, entry in short.items())]
    for op, entry in ops.items():
        if op not in short:
            lines += ["", f"[ops.{_key(op)}]", *(f"{key} = {_lines(value)}" for key, value in entry.items())]
    if refused:
        lines += ["", "[refused]", *(f"{_key(op)} = {_inline(words)}" for op, words in refused.items())]
    return "\n".join(lines) + "\n"


def _lines(value: object) -> str:
    text = _inline(value)
    if not isinstance(value, list) or len(text) <= _WIDE:
        return text
    return "[\n" + "".join(f"    {_inline(item)},\n" for item in value) + "]"


def _inline(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(clean(value), ensure_ascii=False)
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: _ORDER.index(key) if key in _ORDER else len(_ORDER))
        entries = ", ".join(f"{_key(key)} = {_inline(value[key])}" for key in keys)
        return f"{{ {entries} }}" if entries else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return json.dumps(value)


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else _inline(name)
