"""Modules of well-known PyTorch models that do not export: `benchmarks/exports.py PYTHON [--write docs/export.md]`.

PYTHON has torch, onnxscript, transformers, timm and torchvision.
"""

import argparse
import re
from pathlib import Path

import onnx_bisect

MODELS = Path(__file__).with_name("torch_models.py")
NAMES = {
    "sam3": "transformers Sam3Model",
    "sam2": "transformers Sam2Model",
    "mixtral": "transformers MixtralForCausalLM",
    "llama_cache": "transformers LlamaForCausalLM, a cache's tensors in and out",
    "whisper": "transformers WhisperModel",
    "ssdlite": "torchvision SSDlite with NMS",
    "timm_repvit": "timm repvit_m0_9",
    "timm_vit": "timm vit_tiny, 3 blocks",
}
TRIES = ["attention=eager", "use_cache=false"]
BEGIN, END = "<!-- benchmarks/exports.py -->\n", "<!-- end -->\n"


def row(name: str, python: Path) -> tuple[str, str]:
    """The line of one model."""
    report = onnx_bisect.export(f"{MODELS}:{name}", python=python, tries=TRIES, progress=print).report
    culprits = "<br>".join(
        f"`{it.path or 'the model'}`: {it.kind}"
        + (f", `{Path(it.place.file).name}:{it.place.line}`" if it.place else "")
        + "".join(f"; exports with {one.setting}" for one in it.tried if one.exports)
        for it in report.culprits
    )
    rest = "proven" if report.proven else "in parts"
    cells = (NAMES[name], report.modules, report.exports, f"{report.seconds:.0f}", culprits or "none", rest)
    return report.torch, "| " + " | ".join(map(str, cells)) + " |\n"


def main() -> None:
    """Print the table, or write it into the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--only", nargs="*", default=[*NAMES])
    arguments = parser.parse_args()
    found = [row(name, arguments.python) for name in arguments.only]
    head = f"torch {found[0][0]}, small random configurations (`benchmarks/torch_models.py`), two busy cores:\n\n"
    head += "| model | modules | exports | seconds | culprits | the rest |\n| --- | --- | --- | --- | --- | --- |\n"
    table = head + "".join(line for _, line in found)
    if arguments.write is None:
        print(table)
        return
    text = arguments.write.read_text()
    arguments.write.write_text(re.sub(f"{BEGIN}.*?{END}", lambda it: BEGIN + table + END, text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
