"""Public tools that have the same rules. They are cited for facts; none of their code is used."""

_TIDL = (
    "https://github.com/TexasInstruments/edgeai-tidl-tools/blob/95ba2c7ec62bbedeb637d7a5c0273fcede21cac9/"
    "osrt-model-tools/osrt_model_tools/onnx_tools/tidl_onnx_model_optimizer/src/"
)
_EXECUTORCH = "https://github.com/pytorch/executorch/blob/cff6f4dd32e630945b7188512c1f2b4f102b05ad/backends/"

OLIVE = (
    "https://github.com/microsoft/Olive/blob/ee6f40fbefcc54f48cccab5ef4746b6c6dd28372/"
    "olive/passes/onnx/graph_surgeries.py"
)
ONNX2TF = "https://github.com/PINTO0309/onnx2tf#readme"
CONVERTER_FIX = (
    "https://gitcode.com/openharmony-model-agent/model-claw/blob/master/.opencode/skills/"
    "onnx-converter-operator-fix/SKILL.md"
)
ORT_CONTRIB = "https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md"
ONNX_OPERATORS = "https://onnx.ai/onnx/operators/onnx__"
AI_HUB = (
    "https://github.com/qualcomm/ai-hub-models/blob/b61a009028de5420032377d9e6bd7280aae24c74/qai_hub_models/models/"
)


def tidl(file: str) -> str:
    """A rule of TI's model optimiser."""
    return _TIDL + file


def executorch(file: str) -> str:
    """A pass of one of ExecuTorch's backends."""
    return _EXECUTORCH + file


def operator(name: str) -> str:
    """The definition of an ONNX operator."""
    return f"{ONNX_OPERATORS}{name}.html"
