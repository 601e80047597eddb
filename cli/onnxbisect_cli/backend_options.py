"""`onnx-bisect backends options`: what `--option` takes."""

from onnxbisect.report.text import clean
from onnxbisect_backends import registry


def show(name: str) -> None:
    """One paragraph for each option; raises OptionError and BackendUnusableError for what is no backend."""
    options = registry.find(name).options
    if not options:
        print(f"{clean(name)} has no options that it tells.")
    for option in options:
        default = f"  (default: {option.default})" if option.default else ""
        print(clean(f"{option.name}={'|'.join(option.choices) or 'VALUE'}{default}"))
        if option.help:
            print(f"    {clean(option.help)}")
        if option.alternatives:
            print(f"    worth trying: {clean(', '.join(option.alternatives))}")
