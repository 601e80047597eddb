import sys

import onnx
from onnx import shape_inference

m = shape_inference.infer_shapes(onnx.load(sys.argv[1]), data_prop=True)
r = {}
for v in list(m.graph.value_info) + list(m.graph.input) + list(m.graph.output):
    r[v.name] = len(v.type.tensor_type.shape.dim)
bad = 0
for n in m.graph.node:
    d = r.get(n.input[0], 0) if n.input else 0
    if d > 4:
        print(f"Layer {n.name} --- op type - {n.op_type}, Number of input dims {d} != 4 .. not supported by TIDL")
        bad += 1
sys.exit(1 if bad else 0)
