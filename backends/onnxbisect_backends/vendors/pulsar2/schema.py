"""The whole configuration of `pulsar2 build`: proto3 message `pulsar2.build.BuildConfig`.

Source: pulsar2-docs, user_guides_config/config.md and user_guides_advanced/advanced_build_guides.md
(`pulsar2 build -h`) of 2026-04-23. Names, values and defaults are the vendor's, spelling included; the comment at each
field of config.md lists the values that it takes, AX615 and AX637 are from `pulsar2 build -h` and the quick starts.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from onnxbisect_backends.options import WorthTrying

ModelType = Literal["ONNX", "QuantAxModel", "QuantONNX"]
Hardware = Literal["AX650", "AX620E", "AX615", "AX637", "M76H", "M57"]
NpuMode = Literal["NPU1", "NPU2", "NPU3"]
QuantMethod = Literal["MinMax", "Percentile", "MSE", "KL"]
#: Sources of the inputs of each layer in the precision analysis, and what simulates the layers.
AnalysisMethod = Literal["PerLayer", "EndToEnd"]
AnalysisMode = Literal["Reference", "NPUBackend"]
#: Sets of tensors that are compared after compiling.
CheckMode = Literal["CheckOutput", "CheckPerLayer"]
#: Formats of the files in a calibration archive.
DataFormat = Literal["Image", "Numpy", "Binary", "NumpyObject"]
LayerType = Literal["U8", "S8", "U16", "S16", "FP32"]
WeightType = Literal["S8", "FP32"]
BiasType = Literal["S32", "FP32"]
ScaleType = Literal["FP32", "S32", "U32"]
#: Element types of inputs at run time. S64 is not documented; version 6.0 accepts it.
SourceType = Literal["U8", "S8", "U16", "S16", "U32", "S32", "S64", "FP16", "FP32"]
OutputType = Literal["FP32", "U8"]
TensorFormat = Literal["AutoColorSpace", "BGR", "RGB", "GRAY"]
SourceFormat = Literal["AutoColorSpace", "GRAY", "BGR", "RGB", "YUV420SP", "YVU420SP", "YUYV422", "UYVY422", "RAW"]
Layout = Literal["NHWC", "NCHW"]
#: `DefaultLayout` is for outputs that are no images.
OutputLayout = Literal["DefaultLayout", "NHWC", "NCHW"]
CscMode = Literal["NoCSC", "Matrix", "FullRange", "LimitedRange"]
ScheduleStrategy = Literal["Tile", "Slice"]
#: Whether a group pattern is matched by ops or by tensors.
MatchMode = Literal["Op", "Tensor"]

#: The chips that have two NPU cores, and those that take models which the user has quantised.
_TWO_CORES = ("AX620E", "AX615")
_TAKE_QUANTISED = ("AX650", "M76H")


def _dimensions(text: str) -> str:
    for entry in filter(None, text.split(";")):
        name, _, dims = entry.rpartition(":")
        if not name or not re.fullmatch(r"\d+(x\d+)*", dims):
            raise ValueError(f"'{entry}' is not NAME:1x3x224x224; several are separated by semicolons")
    return text


class Message(BaseModel):
    """A message; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OnnxOptimizeOption(Message):
    """`onnx_opt`: transformations and checks of the graph before quantisation."""

    disable_onnx_optimization: bool = False
    enable_onnxsim: bool = False
    model_check: bool = False
    disable_transformation_check: bool = False
    save_tensors_data: bool = False


class InputQuantConfig(Message):
    """Calibration data of one input, or of all as `DEFAULT`."""

    tensor_name: str
    calibration_dataset: str
    calibration_format: DataFormat = "Image"
    calibration_size: int = Field(default=32, ge=-1)  # -1: all samples
    calibration_mean: tuple[float, ...] = ()
    calibration_std: tuple[float, ...] = ()


class LayerConfig(Message):
    """Precision of the layers that one selector chooses."""

    layer_name: str = ""
    op_type: str = ""
    start_tensor_names: tuple[str, ...] = ()
    end_tensor_names: tuple[str, ...] = ()
    data_type: LayerType = "U8"
    weight_data_type: WeightType = "S8"
    layer_names: tuple[str, ...] = ()
    op_types: tuple[str, ...] = ()
    output_data_type: LayerType | None = None

    @model_validator(mode="after")
    def _one_selector(self) -> Self:
        by_range = self.start_tensor_names and self.end_tensor_names
        selectors = (self.layer_name, self.op_type, self.layer_names, self.op_types, by_range)
        if sum(map(bool, selectors)) != 1:
            raise ValueError(
                "exactly one of layer_name, op_type, layer_names, op_types, or start_tensor_names with "
                "end_tensor_names must say which layers are meant"
            )
        return self

    @model_validator(mode="after")
    def _quantised_convolutions(self) -> Self:
        if self.data_type == "FP32" and "Conv" in (self.op_type, *self.op_types):
            raise ValueError("data_type of Conv cannot be FP32; its output_data_type can")
        return self


class QuantConfig(Message):
    """`quant`: calibration and quantisation."""

    input_configs: tuple[InputQuantConfig, ...] = ()
    layer_configs: tuple[LayerConfig, ...] = ()
    calibration_method: QuantMethod = "MinMax"
    precision_analysis: bool = False
    precision_analysis_method: AnalysisMethod = "PerLayer"
    precision_analysis_mode: AnalysisMode = "Reference"
    highest_mix_precision: bool = False
    conv_bias_data_type: BiasType = "S32"
    refine_weight_threshold: float = Field(default=1e-6, lt=1e-4)
    enable_smooth_quant: bool = False
    smooth_quant_threshold: float = Field(default=0.2, ge=0, le=1)
    smooth_quant_strength: float = 0.6
    transformer_opt_level: int = Field(default=0, ge=0, le=2)
    input_sample_dir: str = ""
    ln_scale_data_type: ScaleType = "FP32"
    check: int = Field(default=0, ge=0, le=1)
    disable_auto_refine_scale: bool = False
    enable_easy_quant: bool = False
    disable_quant_optimization: bool = False
    enable_brecq: bool = False
    enable_lsq: bool = False
    enable_adaround: bool = False
    finetune_epochs: int = Field(default=500, ge=1)
    finetune_block_size: int = Field(default=4, ge=1)
    finetune_batch_size: int = Field(default=1, ge=1)
    finetune_lr: float = 1e-3
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda:[0-7])$")


class Shape(Message):
    """Dimensions."""

    shape: tuple[int, ...] = ()


class InputProcessor(Message):
    """Preprocessing of one input, or of all inputs as `DEFAULT`."""

    tensor_name: str
    tensor_format: TensorFormat = "AutoColorSpace"
    tensor_layout: Layout = "NCHW"
    src_format: SourceFormat = "AutoColorSpace"
    src_layout: Layout = "NCHW"
    src_dtype: SourceType = "FP32"
    src_extra_shapes: tuple[Shape, ...] = ()
    csc_mode: CscMode = "NoCSC"
    csc_mat: tuple[float, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    padding: tuple[int, ...] = ()
    padding_mode: str = Field(default="constant", pattern=r"^constant$")
    padding_constant_value: int = 0
    slicing: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _matrix(self) -> Self:
        if len(self.csc_mat) not in (0, 12) or (self.csc_mode == "Matrix" and not self.csc_mat):
            raise ValueError(f"csc_mat has {len(self.csc_mat)} numbers; it is a matrix of 3 x 4, 12 numbers")
        return self


class OutputProcessor(Message):
    """Postprocessing of one output, or of all outputs as `DEFAULT`."""

    tensor_name: str
    tensor_layout: OutputLayout = "DefaultLayout"
    dst_perm: tuple[int, ...] = ()
    output_dtype: OutputType = "FP32"


class ConstProcessor(Message):
    """A replacement for the value of a constant."""

    name: str
    data: tuple[float, ...] = ()
    data_path: str = ""


class OpProcessor(Message):
    """Replacements for attributes of an operator."""

    op_name: str
    attrs: dict[str, Any] = Field(default_factory=dict)


class Node(Message):
    """One op of a group pattern."""

    types: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    properties: dict[str, Any] = Field(default_factory=dict)


class Graph(Message):
    """A pattern of ops that are scheduled together."""

    nodes: tuple[Node, ...] = ()
    type: ScheduleStrategy = "Tile"
    match_mode: MatchMode = "Op"


class CompilerConfig(Message):
    """`compiler`: scheduling, and checks of the result. Only entries of `sub_configs` have tensor names."""

    static_batch_sizes: tuple[int, ...] = ()
    max_dynamic_batch_size: int = Field(default=0, ge=0)
    disable_ir_fix: bool = False
    check: int = Field(default=0, ge=0, le=3)
    npu_perf: bool = False
    check_mode: CheckMode = "CheckOutput"
    check_rtol: float = 1e-5
    check_atol: float = 0.0
    check_cosine_simularity: float = 0.999
    check_tensor_black_list: tuple[str, ...] = ()
    ddr_bw_limit: float = 0.0
    enable_slice_mode: bool = False
    enable_data_soft_compression: bool = False
    compiler_group_patterns: tuple[Graph, ...] = ()
    input_sample_dir: str = ""
    start_tensor_names: tuple[str, ...] = ()
    end_tensor_names: tuple[str, ...] = ()
    enable_tile_mode: bool = False
    sub_configs: "tuple[CompilerConfig, ...]" = ()

    @model_validator(mode="after")
    def _one_kind_of_batches(self) -> Self:
        if self.static_batch_sizes and self.max_dynamic_batch_size:
            raise ValueError("static_batch_sizes and max_dynamic_batch_size exclude each other; leave one out")
        return self


class BuildConfig(Message):
    """The root message of a configuration."""

    input: str = ""
    output_dir: str = ""
    output_name: str = ""
    work_dir: str = ""
    model_type: ModelType = "ONNX"
    target_hardware: Annotated[Hardware, WorthTrying()] = "AX650"
    npu_mode: NpuMode = "NPU1"
    input_shapes: Annotated[str, AfterValidator(_dimensions)] = ""
    onnx_opt: OnnxOptimizeOption = OnnxOptimizeOption()
    quant: QuantConfig = QuantConfig()
    input_processors: tuple[InputProcessor, ...] = ()
    output_processors: tuple[OutputProcessor, ...] = ()
    const_processors: tuple[ConstProcessor, ...] = ()
    op_processors: tuple[OpProcessor, ...] = ()
    quant_op_processors: tuple[OpProcessor, ...] = ()
    compiler: CompilerConfig = CompilerConfig()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """`input_shapes` by the names of the inputs."""
        entries = [entry.rpartition(":") for entry in filter(None, self.input_shapes.split(";"))]
        return {name: tuple(map(int, dims.split("x"))) for name, _, dims in entries}

    @model_validator(mode="after")
    def _what_the_chip_has(self) -> Self:
        if self.npu_mode == "NPU3" and self.target_hardware in _TWO_CORES:
            raise ValueError(f"npu_mode is NPU3, and {self.target_hardware} has only NPU1 and NPU2")
        if self.model_type == "QuantONNX" and self.target_hardware not in _TAKE_QUANTISED:
            raise ValueError(
                f"model_type is QuantONNX, which {self.target_hardware} does not take; {' and '.join(_TAKE_QUANTISED)} "
                "do"
            )
        return self


class Debug(Message):
    """Switches of `pulsar2 build` from the vendor's guide; its help and its configuration file lack them."""

    dump_frontend_graph: bool = Field(
        default=False, description="write the model as it is behind the front end into output/frontend"
    )


class BuildOptions(BuildConfig):
    """All settings of the command line: the configuration and the debug switches."""

    debug: Debug = Debug()
