"""The fields that the stand-in for pulsar2 knows: written down apart from the backend's own schema, to catch its slips.

Source: pulsar2-docs, user_guides_config/config.md of 2026-04-23.
"""

from typing import Any

STRING, NUMBER, BOOL = (str,), (int, float), (bool,)
DTYPE = ("U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64", "FP16", "FP32", "BF16")
#: Message type to fields: a tuple of types or values, the name of another message, or a list of either.
MESSAGES: dict[str, dict[str, Any]] = {
    "BuildConfig": {
        **dict.fromkeys(("input", "output_dir", "output_name", "work_dir", "input_shapes"), STRING),
        "model_type": ("ONNX", "QuantAxModel", "QuantONNX", "OptimizedQuantAxModel"),
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
        "highest_mix_precision": BOOL,
        "check": NUMBER,
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
        **dict.fromkeys(("data_type", "weight_data_type", "output_data_type"), DTYPE),
    },
    "InputProcessor": {
        "tensor_name": STRING,
        **dict.fromkeys(("tensor_format", "src_format"), ("AutoColorSpace", "BGR", "RGB", "GRAY", "YUV420SP")),
        **dict.fromkeys(("tensor_layout", "src_layout"), ("NHWC", "NCHW")),
        "src_dtype": DTYPE,
        **{key: [NUMBER] for key in ("mean", "std")},
    },
    "OutputProcessor": {"tensor_name": STRING, "dst_perm": [NUMBER], "output_dtype": ("FP32", "U8")},
    "ConstProcessor": {"name": STRING, "data": [NUMBER], "data_path": STRING},
    "OpProcessor": {"op_name": STRING, "attrs": (dict,)},
    "CompilerConfig": {
        "check": NUMBER,
        "check_mode": ("CheckOutput", "CheckPerLayer"),
        "npu_perf": BOOL,
        "static_batch_sizes": [NUMBER],
        **{key: [STRING] for key in ("start_tensor_names", "end_tensor_names")},
        "sub_configs": ["CompilerConfig"],
    },
}
