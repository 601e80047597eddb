"""Ops that are written out, as exporters do it, inside and just outside of the rules' conditions."""

from collections.abc import Callable

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import parser

from support.rewrites.cases_normalisation import EDGES as SQUARED
from support.rewrites.cases_normalisation import of_row
from support.rewrites.instances import EDGES, Instance, case, dtype_of, floats, opset, shape

DrawFn = st.DrawFn


def written(
    draw: DrawFn,
    body: str,
    x: np.ndarray,
    *,
    version: int,
    out: tuple[int, ...] | None = None,
    scale: np.ndarray | float | None = None,
    **stored: np.ndarray | list[int] | float,
) -> Instance:
    """The graph of these nodes, from x to y, one of which is called `n`; `stored` are its constants."""
    kind = onnx.TensorProto.DataType.Name(dtype_of(x)).lower()
    dims, made = (",".join(map(str, it)) for it in (x.shape, x.shape if out is None else out))
    text = f'<ir_version: 10, opset_import: ["": {version}]>\ng ({kind}[{dims}] x) => ({kind}[{made}] y) {{ {body} }}'
    model = parser.parse_model(text)
    for name, value in stored.items():
        array = (
            value
            if isinstance(value, np.ndarray)
            else np.array(value, np.int64 if isinstance(value, list) else x.dtype)
        )
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    nodes = list(model.graph.node)
    for number, node in enumerate(nodes):
        node.name = f"part{number}"
    draw(st.sampled_from(nodes)).name = "n"
    return Instance(onnx.shape_inference.infer_shapes(model, data_prop=True), {"x": x}, scale)


def read_elsewhere(inside: Callable[[DrawFn], Instance], inner: str) -> Callable[[DrawFn], Instance]:
    """What is inside of the pattern is an output of the model, too."""

    def outside(draw: DrawFn) -> Instance:
        instance = inside(draw)
        instance.model.graph.output.add(name=inner)
        return instance

    return outside


_GELUS = (
    "h = Mul(x, half) g = Add(e, one) y = Mul(h, g)",
    "g = Add(e, one) h = Mul(x, g) y = Mul(h, half)",
    "g = Add(one, e) h = Mul(half, g) y = Mul(h, x)",
)


def _gelu(draw: DrawFn) -> Instance:
    x = floats(draw, shape(draw))
    argument = draw(st.sampled_from(["a = Div(x, root)", "a = Mul(x, back)"]))
    body = f"{argument} e = Erf(a) {draw(st.sampled_from(_GELUS))}"
    numbers = {"half": 0.5, "one": 1.0, "root": 2**0.5, "back": 0.5**0.5}
    return written(draw, body, x, version=opset(draw, 20, 22), scale=np.abs(x), **numbers)


case("gelu-fuse", read_elsewhere(_gelu, "e"))(_gelu)


def _gelu_tanh(draw: DrawFn) -> Instance:
    x = floats(draw, shape(draw))
    bent = draw(
        st.sampled_from(
            [
                "p = Pow(x, three) q = Mul(p, bend) i = Add(x, q)",
                "s = Mul(x, x) p = Mul(s, x) q = Mul(bend, p) i = Add(x, q)",
                "s = Mul(x, x) p = Mul(s, bend) q = Add(p, one) i = Mul(x, q)",
            ]
        )
    )
    body = f"{bent} a = Mul(i, slope) e = Tanh(a) {draw(st.sampled_from(_GELUS))}"
    numbers = {"half": 0.5, "one": 1.0, "three": 3.0, "bend": 0.044715, "slope": (2 / np.pi) ** 0.5}
    return written(draw, body, x, version=opset(draw, 20, 22), scale=np.abs(x), **numbers)


case("gelu-tanh-fuse", read_elsewhere(_gelu_tanh, "q"))(_gelu_tanh)


_TO_SQUARE = (0.0, -0.0, 1.0, -1.0, 100.0, -100.0, 1e-4, 6e-8)


def _layernorm(draw: DrawFn, *, last: bool = True, half: bool = False) -> Instance:
    dims = (*shape(draw, 1, 2), draw(st.integers(4, 12))) if half else shape(draw, 2)
    x = floats(draw, dims, edges=_TO_SQUARE if half else SQUARED, dtype=np.float16 if half else np.float32)
    first = draw(st.integers(0 if last else 1, len(dims) - 1))
    axes = list(range(first, len(dims))) if last else list(range(first))
    row = draw(st.sampled_from([dims[first:], dims[-1:], ()]))
    gamma, beta = (floats(draw, row, edges=(0.0, 1.0), spread=1, dtype=x.dtype.type) for _ in range(2))
    wide = draw(st.booleans()) if half else False  # as torch exports it, with the squares in float32
    if draw(st.booleans()):
        body = "m = ReduceMean(x, axes) d = Sub(x, m) "
        version, stored = opset(draw, 18, 21), {"axes": axes}
    else:
        body = f"m = ReduceMean<axes = {axes}>(x) d = Sub(x, m) "
        version, stored = 17, {}
    body += draw(st.sampled_from(["s = Mul(d, d) ", "s = Pow(d, two) "]))
    body += body.split(" d = ")[0].replace("m = ", "v = ").replace("(x", "(s")
    body += " w = Add(v, eps) r = Sqrt(w) " + draw(
        st.sampled_from(["n = Div(d, r) g = Mul(n, gamma) y = Add(g, beta)", "n = Div(d, r) y = Mul(gamma, n)"])
    )
    if wide:
        body = body.replace("d = Sub(x, m)", "e = Sub(x, m) d = Cast<to = 1>(e)")
        body = body.replace("n = Div(d, r)", "o = Div(d, r) n = Cast<to = 10>(o)")
    beta = beta if "beta" in body else np.zeros((), np.float32)
    # 6e-5: below it float16 has no more digits, but steps
    scale = of_row(x, tuple(axes), 1e-5, gamma, beta, least=6e-5 if half else 0.0)
    two, eps = (np.array(it, np.float32 if wide else x.dtype) for it in (2.0, 1e-5))
    given = {"two": two, "eps": eps, "gamma": gamma, "beta": beta, **stored}
    return written(draw, body, x, version=version, scale=scale, **given)


def _no_layernorm(draw: DrawFn) -> Instance:
    """Of other axes, or of what is less its mean over the rows, times what is less that over the columns."""
    if draw(st.booleans()):
        return _layernorm(draw, last=False)
    body = (
        "m = ReduceMean<axes = [1]>(x) d = Sub(x, m) k = ReduceMean<axes = [0]>(x) c = Sub(x, k) s = Mul(c, d) "
        "v = ReduceMean<axes = [1]>(s) w = Add(v, eps) r = Sqrt(w) y = Div(d, r)"
    )
    return written(draw, body, floats(draw, shape(draw, 2, 2)), version=17, eps=1e-5)


@case("layernorm-fuse", _no_layernorm)
def _(draw: DrawFn) -> Instance:
    return _layernorm(draw)


@case("layernorm-half-fuse", lambda draw: _layernorm(draw))  # in float32
def _(draw: DrawFn) -> Instance:
    return _layernorm(draw, half=True)


def _rmsnorm(draw: DrawFn, version: int, *, half: bool = False) -> Instance:
    dims = (*shape(draw, 1, 2), draw(st.integers(4, 12))) if half else shape(draw)
    kind = np.float16 if half else np.float32
    x = floats(draw, dims, edges=_TO_SQUARE if half else SQUARED, dtype=kind)
    gamma = floats(draw, dims[-1:], edges=(0.0, 1.0), spread=1, dtype=kind)
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
        output = np.abs(wide / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + 1e-5) * gamma)
    body = draw(st.sampled_from(["s = Mul(x, x) ", "s = Pow(x, two) "]))
    body += "v = ReduceMean(s, axes) w = Add(v, eps) r = Sqrt(w) "
    body += draw(
        st.sampled_from(["n = Div(x, r) ", "i = Div(one, r) n = Mul(x, i) ", "i = Reciprocal(r) n = Mul(x, i) "])
    )
    body += "y = Mul(n, gamma)"
    given = {"two": 2.0, "one": 1.0, "eps": 1e-5, "gamma": gamma, "axes": [-1]}
    if half:
        output += 6e-5 * np.abs(gamma.astype(np.float64))
    return written(draw, body, x, version=version, scale=output * (dims[-1] + 2), **given)


@case("rmsnorm-fuse", lambda draw: _rmsnorm(draw, 18))
def _(draw: DrawFn) -> Instance:
    return _rmsnorm(draw, opset(draw, 23, 24))


@case("rmsnorm-half-fuse", lambda draw: _rmsnorm(draw, 23))  # in float32
def _(draw: DrawFn) -> Instance:
    return _rmsnorm(draw, opset(draw, 23, 24), half=True)


_CLIPPED = "a = Add(x, three) c = Clip(a, zero, six) "


def _hardswish(draw: DrawFn, *bodies: str, edges: tuple[float, ...] = EDGES) -> Instance:
    x = floats(draw, shape(draw), edges=edges)
    numbers = {"three": 3.0, "zero": 0.0, "six": 6.0, "sixth": 1 / 6}
    body = draw(st.sampled_from(bodies))
    return written(draw, body, x, version=opset(draw, 14, 17, 22), scale=np.abs(x), **numbers)


@case("hardswish-fuse", lambda draw: _hardswish(draw, "g = HardSigmoid<alpha = 0.2, beta = 0.5>(x) y = Mul(x, g)"))
def _(draw: DrawFn) -> Instance:
    return _hardswish(
        draw,
        "g = HardSigmoid<alpha = 0.166666667, beta = 0.5>(x) y = Mul(x, g)",
        _CLIPPED + "p = Div(c, six) y = Mul(x, p)",
        _CLIPPED + "p = Mul(sixth, c) y = Mul(p, x)",
    )


@case("hardswish-product-fuse", lambda draw: _hardswish(draw, _CLIPPED + "p = Mul(x, c) y = Div(p, three)"))
def _(draw: DrawFn) -> Instance:
    bodies = [_CLIPPED + "p = Mul(x, c) y = Div(p, six)", _CLIPPED + "p = Mul(c, x) y = Mul(p, sixth)"]
    return _hardswish(draw, *bodies, edges=(0.0, -0.0, 1e-45, 1e37, -1e37, 3.0, -3.0))


def _swish(draw: DrawFn, version: int) -> Instance:
    return written(draw, "s = Sigmoid(x) y = Mul(x, s)", floats(draw, shape(draw)), version=version)


@case("swish-fuse", lambda draw: _swish(draw, 22))
def _(draw: DrawFn) -> Instance:
    return _swish(draw, 24)


def _shuffle(draw: DrawFn, *, down: bool, wrong: bool = False) -> Instance:
    batch, depth, height, width, block = (draw(st.integers(1, 3)) for _ in range(5))
    block += 1
    deep, large = (batch, depth * block**2, height, width), (batch, depth, height * block, width * block)
    if down:
        first, perm = [batch, depth, height, block, width, block], [0, 3, 5, 1, 2, 4]
    elif draw(st.booleans()):
        first, perm = [batch, block, block, depth, height, width], [0, 3, 4, 1, 5, 2]
    else:
        first, perm = [batch, depth, block, block, height, width], [0, 1, 4, 2, 5, 3]
    before, after = (large, deep) if down else (deep, large)
    if wrong and draw(st.booleans()):
        after = (1, 1, int(np.prod(before)), 1)
    elif wrong:
        perm = [0, 1, 2, 3, 4, 5]
    body = f"a = Reshape(x, first) b = Transpose<perm = {perm}>(a) y = Reshape(b, last)"
    x = floats(draw, before, dtype=draw(st.sampled_from([np.float32, np.float64])))
    return written(draw, body, x, version=opset(draw, 13, 17), out=after, first=first, last=list(after))


@case("depthtospace-fuse", lambda draw: _shuffle(draw, down=False, wrong=True))
def _(draw: DrawFn) -> Instance:
    return _shuffle(draw, down=False)


@case("spacetodepth-fuse", lambda draw: _shuffle(draw, down=True, wrong=True))
def _(draw: DrawFn) -> Instance:
    return _shuffle(draw, down=True)
