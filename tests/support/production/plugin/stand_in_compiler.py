"""`stand_in_compiler.py MODEL DENY DELAY`: refuses models with an op of `A-B-C`, after DELAY seconds.

It looks for the bytes of the field `op_type`, since parsing needs onnx, which takes longer to import than all the rest.
"""

import sys
import time


def main(model: str, deny: str, delay: str) -> int:
    time.sleep(float(delay))
    with open(model, "rb") as file:  # noqa: PTH123 - pathlib takes longer to import than this takes
        data = file.read()
    for op in deny.split("-"):
        if bytes([0x22, len(op)]) + op.encode() in data:
            print(f"error: operator {op} is not supported")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
