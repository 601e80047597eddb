"""`onnx-bisect settings`: what the environment of this process makes of the service."""

import os

from pydantic import SecretStr
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from onnxbisect_worker.settings import Settings, load_settings


def show() -> None:
    """Every setting with its value and what it is for; secrets are only said to be there."""
    settings = load_settings()
    table = Table(box=None, pad_edge=False)
    table.add_column("variable", no_wrap=True)
    for column in ("value", "", "what it is"):
        table.add_column(column, overflow="fold")
    for name, field in Settings.model_fields.items():
        variable = f"ONNXBISECT_{name.upper()}"
        given = "set" if variable in os.environ else "default"
        table.add_row(variable, escape(_shown(getattr(settings, name))), given, escape(field.description or ""))
    Console().print(table)


def _shown(value: object) -> str:
    if isinstance(value, SecretStr):
        return "(a secret)"
    if value is None or value == ():
        return "-"
    return ",".join(value) if isinstance(value, tuple) else str(value)
