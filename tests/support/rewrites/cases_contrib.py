"""Ops that onnxruntime fuses, inside and just outside of the rules' conditions; onnxruntime runs both sides."""

import numpy as np
from hypothesis import strategies as st
from onnx import helper

from support.rewrites.cases_linear import of_products
from support.rewrites.cases_normalisation import EDGES, of_row
from support.rewrites.instances import Constant, Instance, case, floats, integers, node, opset, shape

DrawFn = st.DrawFn
MS = {"domain": "com.microsoft"}
TAME = (0.0, -0.0, 1.0, -1.0, 3.0)


def _weights(draw: DrawFn, *dims: int) -> Constant:
    return Constant(floats(draw, dims, edges=(0.0, 1.0), spread=1))


def _skipnorm(draw: DrawFn, *, outputs: int) -> Instance:
    batch, steps, hidden = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 6))
    x = floats(draw, (batch, steps, hidden), edges=EDGES)
    skip = floats(
        draw, draw(st.sampled_from([(batch, steps, hidden), (1, steps, hidden), (steps, hidden)])), edges=TAME
    )
    gamma, beta = _weights(draw, hidden), _weights(draw, hidden)
    bias = _weights(draw, hidden) if draw(st.booleans()) else None
    epsilon = draw(st.sampled_from([1e-12, 1e-3]))
    total = x + skip + (0 if bias is None else bias.array)
    # the largest number before the sum counts, which may cancel
    size = np.abs(x) + np.abs(skip) + (0 if bias is None else np.abs(bias.array))
    scale = of_row(total, (2,), epsilon, gamma.array, beta.array) * (1 + _ratio(size, total))
    simplified = draw(st.booleans())
    op = "SkipSimplifiedLayerNormalization" if simplified else "SkipLayerNormalization"
    given = [gamma, bias] if simplified else [gamma, beta, bias]
    return node(op, x, skip, *given, outputs=outputs, epsilon=epsilon, opset=opset(draw, 17, 21), scale=scale, **MS)


def _ratio(size: np.ndarray, total: np.ndarray) -> np.ndarray:
    largest = np.abs(total).max(axis=-1, keepdims=True).astype(np.float64)
    return np.abs(size).max(axis=-1, keepdims=True) / np.maximum(largest, 1e-30)


@case("skipnorm-parts", lambda draw: _skipnorm(draw, outputs=3))
def _(draw: DrawFn) -> Instance:
    return _skipnorm(draw, outputs=1)


def _embednorm(draw: DrawFn, *, dtype: type = np.float32) -> Instance:
    batch, steps, hidden, words = 2, draw(st.integers(1, 4)), draw(st.integers(1, 6)), 7
    ids = integers(draw, (batch, steps), 0, words - 1, np.int32)
    segments = integers(draw, (batch, steps), 0, 1, np.int32) if draw(st.booleans()) else None
    tables = [floats(draw, (rows, hidden), edges=TAME, spread=1, dtype=dtype) for rows in (words, 5, 2)]
    gamma, beta = (Constant(_weights(draw, hidden).array.astype(dtype)) for _ in range(2))
    positions = integers(draw, (batch, steps), 0, 4, np.int32) if draw(st.booleans()) else None
    total = tables[0][ids] + tables[1][np.arange(steps) if positions is None else positions]
    total = total if segments is None else total + tables[2][segments]
    scale = of_row(total, (2,), 1e-3, gamma.array, beta.array)
    given = [Constant(tables[0]), Constant(tables[1]), None if segments is None else Constant(tables[2])]
    mask = draw(st.sampled_from([None, np.array([[1] * steps, [1] + [0] * (steps - 1)], np.int32)]))
    rest = [mask, *([] if positions is None else [positions])]
    inputs = (ids, segments, *given, gamma, beta, *rest)
    return node("EmbedLayerNormalization", *inputs, outputs=draw(st.integers(2, 3)), epsilon=1e-3, scale=scale, **MS)


@case("embednorm-parts", lambda draw: _embednorm(draw, dtype=np.float16))
def _(draw: DrawFn) -> Instance:
    return _embednorm(draw)


def _gelu(draw: DrawFn, op: str, *, bias: bool) -> Instance:
    x = floats(draw, (*shape(draw, 1, 2), 4))
    offset = floats(draw, (4,), edges=TAME)
    with np.errstate(all="ignore"):
        scale = np.abs(x + offset) if bias else np.abs(x)
    return node(op, x, *([offset] if bias else []), scale=scale, **MS)


def _other_gelu(draw: DrawFn) -> Instance:
    return _gelu(draw, "Gelu", bias=False)


@case("biasgelu-erf", _other_gelu)
def _(draw: DrawFn) -> Instance:
    return _gelu(draw, "BiasGelu", bias=True)


@case("fastgelu-tanh", _other_gelu)
def _(draw: DrawFn) -> Instance:
    return _gelu(draw, "FastGelu", bias=draw(st.booleans()))


@case("quickgelu-sigmoid", _other_gelu)
def _(draw: DrawFn) -> Instance:
    x = floats(draw, shape(draw), edges=TAME)
    alpha = draw(st.sampled_from([1.0, 1.702, 0.5]))
    return node("QuickGelu", x, alpha=alpha, opset=opset(draw), scale=np.abs(x) * (1 + np.abs(x)), **MS)


def _fusedmatmul_of_doubles(draw: DrawFn) -> Instance:
    a = floats(draw, (3, 3), dtype=np.float64)
    return node("FusedMatMul", a, a, **MS)


@case("fusedmatmul-matmul", _fusedmatmul_of_doubles)
def _(draw: DrawFn) -> Instance:
    batch = draw(st.sampled_from([(), (2,), (2, 3)]))
    rows, depth, columns = (draw(st.integers(1, 4)) for _ in range(3))
    a, b = floats(draw, (*batch, rows, depth), edges=TAME), floats(draw, (*batch, depth, columns), edges=TAME)
    alpha = draw(st.sampled_from([1.0, 0.125, -2.0]))
    scale = of_products(a, b) * abs(alpha)
    turned = {}
    for name, matrix in (("A", a), ("B", b)):
        turn, far = draw(st.booleans()), bool(batch) and draw(st.booleans())
        matrix = np.swapaxes(matrix, -1, -2) if turn else matrix
        matrix = np.moveaxis(matrix, -2, 0) if far else matrix
        turned[name] = (np.ascontiguousarray(matrix), {f"trans{name}": int(turn), f"transBatch{name}": int(far)})
    attributes = {**turned["A"][1], **turned["B"][1]}
    return node("FusedMatMul", turned["A"][0], turned["B"][0], alpha=alpha, scale=scale, **attributes, **MS)


def _fusedconv(draw: DrawFn, activation: str, parameters: list[float]) -> Instance:
    x = floats(draw, (1, 2, 5, 5), edges=TAME, spread=1)
    weight, bias = floats(draw, (3, 2, 3, 3), edges=TAME, spread=1), floats(draw, (3,), edges=TAME)
    added = floats(draw, (1, 3, 5, 5), edges=TAME)
    size = float(np.abs(x).max() * np.abs(weight).sum() + np.abs(bias).max() + np.abs(added).max()) * 22
    given = [x, Constant(weight)]
    if draw(st.booleans()):
        given.append(Constant(bias))
        given += [added] if draw(st.booleans()) and activation in ("Relu", "Tanh") else []
    chosen = {"activation_params": parameters} if parameters else {}
    return node("FusedConv", *given, activation=activation, pads=[1, 1, 1, 1], scale=size, **chosen, **MS)


@case("fusedconv-conv", lambda draw: node("Conv", floats(draw, (1, 1, 2, 2)), floats(draw, (1, 1, 1, 1))))
def _(draw: DrawFn) -> Instance:
    kinds = [("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.125]), ("Clip", [-0.5, 2.0])]
    return _fusedconv(draw, *draw(st.sampled_from([*kinds, ("HardSigmoid", [0.25, 0.5])])))


@case("fusedgemm-gemm", lambda draw: node("FusedGemm", *(floats(draw, (2, 2)),) * 3, activation="Softplus", **MS))
def _(draw: DrawFn) -> Instance:
    rows, depth, columns = (draw(st.integers(1, 4)) for _ in range(3))
    turns = {name: draw(st.integers(0, 1)) for name in ("transA", "transB")}
    a, b = floats(draw, (rows, depth), edges=TAME, spread=1), floats(draw, (depth, columns), edges=TAME, spread=1)
    c = floats(draw, (columns,), edges=TAME)
    factors = {"alpha": draw(st.sampled_from([1.0, 0.5])), "beta": draw(st.sampled_from([1.0, -2.0]))}
    kinds = [("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", {"activation_alpha": 0.125})]
    kind, chosen = draw(st.sampled_from(kinds))
    scale = of_products(a, b) + 2 * np.abs(c)
    given = [np.ascontiguousarray(it.T) if turn else it for it, turn in zip((a, b), turns.values(), strict=True)]
    return node("FusedGemm", *given, Constant(c), activation=kind, scale=scale, **chosen, **factors, **turns, **MS)


def scores_scale(queries: np.ndarray, keys: np.ndarray, values: np.ndarray, terms: int, *, lowered: float = 0) -> float:
    """The largest value's magnitude, times 1 plus the magnitudes that make up the largest score, times their number.

    Where all keys of a row are masked, the largest score is `lowered`, too.
    """
    score = float(np.abs(queries).max() * np.abs(keys).max()) * queries.shape[-1] + lowered
    return float(np.abs(values).max()) * (1 + score) * (terms + 2)


def _mask(draw: DrawFn, batch: int, steps: int, keys: int) -> np.ndarray | None:
    """A mask of 0 and 1 for each key, or each query and key, or of how many keys count."""
    kind = draw(st.sampled_from([(), (batch, keys), (batch, steps, keys), (batch,)]))
    return integers(draw, kind, 0 if len(kind) > 1 else 1, 1 if len(kind) > 1 else keys, np.int32) if kind else None


def _lowered(mask: np.ndarray | None) -> float:
    """By how much the largest score of a row is lowered: a mask may leave none of its keys."""
    return 0 if mask is None or mask.ndim == 1 or mask.any(axis=-1).all() else 1e4


def _multihead(draw: DrawFn) -> Instance:
    batch, steps, keys, heads, width = (draw(st.integers(1, 3)) for _ in range(5))
    hidden = heads * width
    q = floats(draw, (batch, steps, hidden), edges=TAME, spread=1)
    k, v = (floats(draw, (batch, keys, hidden), edges=TAME, spread=1) for _ in range(2))
    bias = floats(draw, (3 * hidden,), edges=(), spread=1) if draw(st.booleans()) else None
    cached = draw(st.sampled_from([0, 0, 2]))
    if bias is None and not cached and draw(st.booleans()):
        k, v = (np.ascontiguousarray(it.reshape(batch, keys, heads, width).transpose(0, 2, 1, 3)) for it in (k, v))
    total = keys + cached
    mask = _mask(draw, batch, steps, total)
    added = floats(draw, (batch, heads, steps, total), edges=TAME) if draw(st.booleans()) else None
    cache = [floats(draw, (batch, heads, cached, width), edges=TAME, spread=1) for _ in range(2)] if cached else []
    most = 0 if bias is None else np.abs(bias).max()
    held = max([0.0, *(float(np.abs(it).max()) for it in cache)])
    sizes = (np.abs(q) + most, np.abs(k) + most + 3 + held, np.abs(v) + most + held)
    scale = scores_scale(*sizes, hidden + 10, lowered=_lowered(mask))
    chosen = {"num_heads": heads, "unidirectional": draw(st.integers(0, 1)) if keys <= steps else 0}
    outputs = 3 if cached and draw(st.booleans()) else 1
    given = (q, k, v, bias, mask, added, *cache)
    instance = node("MultiHeadAttention", *given, outputs=outputs, scale=scale, **chosen, **MS)
    if draw(st.booleans()):
        instance.model.graph.node[0].attribute.append(helper.make_attribute("scale", 0.5))
    return instance


def _multihead_outside(draw: DrawFn) -> Instance:
    """Fewer queries than keys: onnxruntime lets the last query see all keys, whatever `unidirectional` says."""
    q, k, v = (floats(draw, (1, steps, 2), edges=TAME, spread=1) for steps in (1, 2, 2))
    return node("MultiHeadAttention", q, k, v, num_heads=1, unidirectional=1, **MS)


@case("multiheadattention-parts", _multihead_outside)
def _(draw: DrawFn) -> Instance:
    return _multihead(draw)


def _attention(draw: DrawFn, *, ranges: bool = False) -> Instance:
    batch, steps, heads, width, depth = (draw(st.integers(1, 3)) for _ in range(5))
    hidden = heads * width
    x = floats(draw, (batch, steps, depth), edges=TAME, spread=1)
    weight, bias = floats(draw, (depth, 3 * hidden), edges=TAME, spread=1), floats(draw, (3 * hidden,), edges=TAME)
    cached = draw(st.sampled_from([0, 0, 2]))
    cache = floats(draw, (2, batch, heads, cached, width), edges=TAME, spread=1) if cached else None
    mask = _mask(draw, batch, steps, cached + steps)
    if ranges:  # where the keys of each row end, and then where they begin
        mask = np.array([cached + steps] * batch + [0] * batch, np.int32)
    added = None  # onnxruntime takes no cache beside it
    if not cached and draw(st.booleans()):
        added = floats(draw, (batch, heads, steps, steps), edges=TAME)
    most = float(np.abs(x).max() * np.abs(weight).max()) * depth + float(np.abs(bias).max())
    largest = np.full((1, width), most + (0 if cache is None else float(np.abs(cache).max())))
    extra = 0 if added is None else float(np.abs(added).max())
    scale = scores_scale(largest, largest, largest, (hidden + 2) * (depth + 2), lowered=_lowered(mask) + extra)
    chosen = {"num_heads": heads, "unidirectional": draw(st.integers(0, 1))}
    outputs = 2 if cached or draw(st.booleans()) else 1
    given = (x, Constant(weight), Constant(bias), mask, cache, added)
    return node("Attention", *given, outputs=outputs, scale=scale, **chosen, **MS)


@case("fusedattention-parts", lambda draw: _attention(draw, ranges=True))
def _(draw: DrawFn) -> Instance:
    return _attention(draw)
