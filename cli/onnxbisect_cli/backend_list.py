"""`onnx-bisect backends`: which compilers can be asked here."""

from onnxbisect.errors import OnnxBisectError
from onnxbisect.report.text import clean, plural
from onnxbisect_backends.registry import BrokenBackend, LoadedBackend, available


def show() -> None:
    """One paragraph for each backend; a broken one is listed with the reason, never fatal."""
    found = available()
    width = max(map(len, found), default=0)
    for name, backend in found.items():
        print(f"{clean(name):{width}}  {clean(_state(backend))}")
    print(f"{'':{width}}  any command: onnx-bisect run MODEL -- my_compile {{model}}")
    print(f"{'':{width}}  your own compiler as a TOML file: onnx-bisect run MODEL --backend ./mychip.toml")


def _state(backend: LoadedBackend | BrokenBackend) -> str:
    if isinstance(backend, BrokenBackend):
        return f"broken: {backend.reason}"
    try:
        made = backend.factory({})
        if complaint := made.check():
            return f"not usable: {complaint}"
        description = made.describe()
    except OnnxBisectError as error:  # it cannot be asked about without options
        return f"usable with options: {error}"
    except Exception as error:  # a third party's bug must not hide the others
        return f"broken: {type(error).__name__}: {error}"
    ops = "" if description.ops is None else f", {plural(len(description.ops), 'op')} advertised"
    return f"usable: {description.tool} {description.version}{ops}"
