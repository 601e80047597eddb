"""`onnx-bisect settings`: the service's settings from this process's environment."""

import os

from pydantic import SecretStr

from onnxbisect_cli import table
from onnxbisect_service.settings import Settings, load_settings


def show() -> None:
    """Print every setting with its value and purpose; of secrets only whether they are set."""
    settings = load_settings()
    rows = []
    for name, field in Settings.model_fields.items():
        variable = f"ONNXBISECT_{name.upper()}"
        given = "set" if variable in os.environ else "default"
        rows.append((variable, _shown(getattr(settings, name)), given, field.description or ""))
    table.show(("variable", "value", "", "what it is"), rows)


def _shown(value: object) -> str:
    if isinstance(value, SecretStr):
        return "(a secret)"
    if value is None or value == ():
        return "-"
    return ",".join(value) if isinstance(value, tuple) else str(value)
