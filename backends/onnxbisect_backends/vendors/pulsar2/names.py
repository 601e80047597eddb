"""The enumerations of pulsar2's configuration, by the vendor's names.

Source: pulsar2-docs, user_guides_config/config.md of 2026-04-23; AX615 and AX637 from `pulsar2 build -h` and the quick
starts.
"""

from enum import StrEnum


class ModelType(StrEnum):
    """What the input file is."""

    ONNX = "ONNX"
    QUANT_AX_MODEL = "QuantAxModel"
    QUANT_ONNX = "QuantONNX"
    OPTIMIZED_QUANT_AX_MODEL = "OptimizedQuantAxModel"


class Hardware(StrEnum):
    """The chips."""

    AX650 = "AX650"
    AX620E = "AX620E"
    AX615 = "AX615"
    AX637 = "AX637"
    M76H = "M76H"
    M57 = "M57"


class NpuMode(StrEnum):
    """How many NPU cores."""

    NPU1 = "NPU1"
    NPU2 = "NPU2"
    NPU3 = "NPU3"


class QuantMethod(StrEnum):
    """How ranges are found."""

    MIN_MAX = "MinMax"
    PERCENTILE = "Percentile"
    MSE = "MSE"
    KL = "KL"


class AnalysisMethod(StrEnum):
    """Where the inputs of each analysed layer come from."""

    PER_LAYER = "PerLayer"
    END_TO_END = "EndToEnd"


class AnalysisMode(StrEnum):
    """What simulates the layers."""

    REFERENCE = "Reference"
    NPU_BACKEND = "NPUBackend"


class CheckMode(StrEnum):
    """Which tensors are compared after compiling."""

    OUTPUT = "CheckOutput"
    PER_LAYER = "CheckPerLayer"


class DataFormat(StrEnum):
    """What is in a calibration archive."""

    IMAGE = "Image"
    NUMPY = "Numpy"
    BINARY = "Binary"
    NUMPY_OBJECT = "NumpyObject"


class DataType(StrEnum):
    """Element types."""

    DEFAULT = "DefaultDataType"
    U8 = "U8"
    S8 = "S8"
    U16 = "U16"
    S16 = "S16"
    U32 = "U32"
    S32 = "S32"
    U64 = "U64"
    S64 = "S64"
    FP16 = "FP16"
    FP32 = "FP32"
    BF16 = "BF16"


class ColorSpace(StrEnum):
    """Formats of image inputs."""

    AUTO = "AutoColorSpace"
    GRAY = "GRAY"
    BGR = "BGR"
    RGB = "RGB"
    RGBA = "RGBA"
    YUV420SP = "YUV420SP"
    YVU420SP = "YVU420SP"
    YUYV422 = "YUYV422"
    UYVY422 = "UYVY422"
    RAW = "RAW"


class Layout(StrEnum):
    """Orders of image dimensions."""

    DEFAULT = "DefaultLayout"
    NHWC = "NHWC"
    NCHW = "NCHW"


class CscMode(StrEnum):
    """How colours are converted."""

    NONE = "NoCSC"
    MATRIX = "Matrix"
    FULL_RANGE = "FullRange"
    LIMITED_RANGE = "LimitedRange"


class ScheduleStrategy(StrEnum):
    """How a group of ops is scheduled."""

    TILE = "Tile"
    SLICE = "Slice"


class MatchMode(StrEnum):
    """By what a group is found."""

    OP = "Op"
    TENSOR = "Tensor"
