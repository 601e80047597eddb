"""The fields that the stand-in for pulsar2 knows: written down apart from the backend's own schema, to catch its slips.

Source: pulsar2-docs, user_guides_config/config.md of 2026-04-23, the comments at each field and the definitions of the
messages; `FLAGS` from `pulsar2 build -h` of user_guides_advanced/advanced_build_guides.md.
"""

from typing import Any

STRING, NUMBER, BOOL = (str,), (int, float), (bool,)
LAYER = ("U8", "S8", "U16", "S16", "FP32")
LAYOUT = ("NHWC", "NCHW")
#: Message type to fields: a tuple of types or values, the name of another message, or a list of either.
MESSAGES: dict[str, dict[str, Any]] = {
    "BuildConfig": {
        **dict.fromkeys(("input", "output_dir", "output_name", "work_dir", "input_shapes"), STRING),
        "model_type": ("ONNX", "QuantAxModel", "QuantONNX"),
        "target_hardware": ("AX650", "AX620E", "M76H", "M57"),
        "npu_mode": ("NPU1", "NPU2", "NPU3"),
        "onnx_opt": "OnnxOptimizeOption",
        "quant": "QuantConfig",
        "input_processors": ["InputProcessor"],
        "output_processors": ["OutputProcessor"],
        "const_processors": ["ConstProcessor"],
        "op_processors": ["OpProcessor"],
        "quant_op_processors": ["OpProcessor"],
        "compiler": "CompilerConfig",
    },
    "OnnxOptimizeOption": dict.fromkeys(
        (
            "disable_onnx_optimization",
            "enable_onnxsim",
            "model_check",
            "disable_transformation_check",
            "save_tensors_data",
        ),
        BOOL,
    ),
    "QuantConfig": {
        "input_configs": ["InputQuantConfig"],
        "layer_configs": ["LayerConfig"],
        "calibration_method": ("MinMax", "Percentile", "MSE", "KL"),
        "precision_analysis": BOOL,
        "precision_analysis_method": ("PerLayer", "EndToEnd"),
        "precision_analysis_mode": ("Reference", "NPUBackend"),
        "input_sample_dir": STRING,
        "highest_mix_precision": BOOL,
        "conv_bias_data_type": ("S32", "FP32"),
        "ln_scale_data_type": ("FP32", "S32", "U32"),
        **dict.fromkeys(
            ("refine_weight_threshold", "smooth_quant_threshold", "smooth_quant_strength", "finetune_lr"), NUMBER
        ),
        **dict.fromkeys(("transformer_opt_level", "check"), (int,)),
        **dict.fromkeys(("finetune_epochs", "finetune_block_size", "finetune_batch_size"), (int,)),
        **dict.fromkeys(
            (
                *("enable_smooth_quant", "disable_auto_refine_scale", "enable_easy_quant", "enable_adaround"),
                *("disable_quant_optimization", "enable_brecq", "enable_lsq"),
            ),
            BOOL,
        ),
        "device": ("cpu", *(f"cuda:{number}" for number in range(8))),
    },
    "InputQuantConfig": {
        "tensor_name": STRING,
        "calibration_dataset": STRING,
        "calibration_format": ("Image", "Numpy", "Binary", "NumpyObject"),
        "calibration_size": NUMBER,
        "calibration_mean": [NUMBER],
        "calibration_std": [NUMBER],
    },
    "LayerConfig": {
        **dict.fromkeys(("layer_name", "op_type"), STRING),
        **{key: [STRING] for key in ("start_tensor_names", "end_tensor_names", "layer_names", "op_types")},
        **dict.fromkeys(("data_type", "output_data_type"), LAYER),
        "weight_data_type": ("S8", "FP32"),
    },
    "InputProcessor": {
        "tensor_name": STRING,
        "tensor_format": ("AutoColorSpace", "BGR", "RGB", "GRAY"),
        "src_format": (
            *("AutoColorSpace", "GRAY", "BGR", "RGB", "RAW"),
            *("YUYV422", "UYVY422", "YUV420SP", "YVU420SP"),
        ),
        **dict.fromkeys(("tensor_layout", "src_layout"), LAYOUT),
        "src_dtype": ("U8", "S8", "U16", "S16", "U32", "S32", "FP16", "FP32", "S64"),
        "src_extra_shapes": ["Shape"],
        "csc_mode": ("NoCSC", "Matrix", "FullRange", "LimitedRange"),
        "padding_mode": ("constant",),
        "padding_constant_value": (int,),
        **{key: [NUMBER] for key in ("csc_mat", "mean", "std", "padding", "slicing")},
    },
    "Shape": {"shape": [(int,)]},
    "OutputProcessor": {
        "tensor_name": STRING,
        "tensor_layout": ("DefaultLayout", *LAYOUT),
        "dst_perm": [NUMBER],
        "output_dtype": ("FP32", "U8"),
    },
    "ConstProcessor": {"name": STRING, "data": [NUMBER], "data_path": STRING},
    "OpProcessor": {"op_name": STRING, "attrs": (dict,)},
    "CompilerConfig": {
        **dict.fromkeys(("check", "max_dynamic_batch_size"), (int,)),
        "check_mode": ("CheckOutput", "CheckPerLayer"),
        **dict.fromkeys(("check_rtol", "check_atol", "check_cosine_simularity", "ddr_bw_limit"), NUMBER),
        **dict.fromkeys(
            (
                *("npu_perf", "disable_ir_fix", "enable_slice_mode", "enable_tile_mode"),
                "enable_data_soft_compression",
            ),
            BOOL,
        ),
        "static_batch_sizes": [(int,)],
        "input_sample_dir": STRING,
        **{key: [STRING] for key in ("start_tensor_names", "end_tensor_names", "check_tensor_black_list")},
        "sub_configs": ["CompilerConfig"],
    },
}

#: What the command line can say beside the paths, of which the tests use a part.
FLAGS = (
    *("input_shapes", "npu_mode", "quant.precision_analysis"),
    *("compiler.static_batch_sizes", "compiler.max_dynamic_batch_size"),
)
