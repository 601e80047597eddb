"""Rockchip's toolkit alone, for the Python of its toolchain: `ask_rknn.py MODEL [RULE …]`.

Exit status 0 if it converts the model without these rules.

Its libraries print at the end of the process which nodes they left out, so whoever calls this reads the log, too.
"""

import sys

from rknn.api import RKNN

rknn = RKNN(verbose=True)
sys.exit(
    rknn.config(target_platform="rk3588", disable_rules=sys.argv[2:])
    or rknn.load_onnx(model=sys.argv[1])
    or rknn.build(do_quantization=False)
    or rknn.export_rknn("model.rknn")
)
