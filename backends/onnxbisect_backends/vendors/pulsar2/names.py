"""The enumerations of pulsar2's configuration, by the vendor's names.

Source: pulsar2-docs, user_guides_config/config.md of 2026-04-23, where the comment at each field lists the values that
the field takes; AX615 and AX637 from `pulsar2 build -h` and the quick starts.
"""

from enum import StrEnum


class ModelType(StrEnum):
    """Formats of the input file."""

    ONNX = "ONNX"
    QUANT_AX_MODEL = "QuantAxModel"
    QUANT_ONNX = "QuantONNX"


class Hardware(StrEnum):
    """The chips."""

    AX650 = "AX650"
    AX620E = "AX620E"
    AX615 = "AX615"
    AX637 = "AX637"
    M76H = "M76H"
    M57 = "M57"


class NpuMode(StrEnum):
    """Numbers of NPU cores to compile for."""

    NPU1 = "NPU1"
    NPU2 = "NPU2"
    NPU3 = "NPU3"


class QuantMethod(StrEnum):
    """Methods of finding the ranges of values for quantisation."""

    MIN_MAX = "MinMax"
    PERCENTILE = "Percentile"
    MSE = "MSE"
    KL = "KL"


class AnalysisMethod(StrEnum):
    """Sources of the inputs of each layer in the precision analysis."""

    PER_LAYER = "PerLayer"
    END_TO_END = "EndToEnd"


class AnalysisMode(StrEnum):
    """Simulators of the layers in the precision analysis."""

    REFERENCE = "Reference"
    NPU_BACKEND = "NPUBackend"


class CheckMode(StrEnum):
    """Sets of tensors that are compared after compiling."""

    OUTPUT = "CheckOutput"
    PER_LAYER = "CheckPerLayer"


class DataFormat(StrEnum):
    """Formats of the files in a calibration archive."""

    IMAGE = "Image"
    NUMPY = "Numpy"
    BINARY = "Binary"
    NUMPY_OBJECT = "NumpyObject"


class LayerType(StrEnum):
    """Element types of a layer, or of its outputs."""

    U8 = "U8"
    S8 = "S8"
    U16 = "U16"
    S16 = "S16"
    FP32 = "FP32"


class WeightType(StrEnum):
    """Element types of the weights of a layer."""

    S8 = "S8"
    FP32 = "FP32"


class BiasType(StrEnum):
    """Element types of the bias of a convolution."""

    S32 = "S32"
    FP32 = "FP32"


class ScaleType(StrEnum):
    """Element types of the scale of a LayerNormalization."""

    FP32 = "FP32"
    S32 = "S32"
    U32 = "U32"


class SourceType(StrEnum):
    """Element types of inputs at run time. S64 is not documented; version 6.0 accepts it."""

    U8 = "U8"
    S8 = "S8"
    U16 = "U16"
    S16 = "S16"
    U32 = "U32"
    S32 = "S32"
    S64 = "S64"
    FP16 = "FP16"
    FP32 = "FP32"


class OutputType(StrEnum):
    """Element types of outputs at run time."""

    FP32 = "FP32"
    U8 = "U8"


class TensorFormat(StrEnum):
    """Colour spaces of image inputs in the model."""

    AUTO = "AutoColorSpace"
    BGR = "BGR"
    RGB = "RGB"
    GRAY = "GRAY"


class SourceFormat(StrEnum):
    """Colour spaces of image inputs at run time."""

    AUTO = "AutoColorSpace"
    GRAY = "GRAY"
    BGR = "BGR"
    RGB = "RGB"
    YUV420SP = "YUV420SP"
    YVU420SP = "YVU420SP"
    YUYV422 = "YUYV422"
    UYVY422 = "UYVY422"
    RAW = "RAW"


class Layout(StrEnum):
    """Orders of image dimensions."""

    NHWC = "NHWC"
    NCHW = "NCHW"


class OutputLayout(StrEnum):
    """Orders of image dimensions of an output; `DefaultLayout` for outputs that are no images."""

    DEFAULT = "DefaultLayout"
    NHWC = "NHWC"
    NCHW = "NCHW"


class CscMode(StrEnum):
    """Conversions of colour spaces."""

    NONE = "NoCSC"
    MATRIX = "Matrix"
    FULL_RANGE = "FullRange"
    LIMITED_RANGE = "LimitedRange"


class ScheduleStrategy(StrEnum):
    """Scheduling strategies for a group of ops."""

    TILE = "Tile"
    SLICE = "Slice"


class MatchMode(StrEnum):
    """Whether a group pattern is matched by ops or by tensors."""

    OP = "Op"
    TENSOR = "Tensor"
