"""Convolutions, pooling, Resize, sampling and Fourier transforms, inside and just outside of the rules' conditions."""

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from onnx.shape_inference import infer_shapes

from support.rewrites.instances import FINITE, Constant, Instance, case, floats, node, opset, shape
from support.rewrites.measured import outputs_of

DrawFn = st.DrawFn
TAME = (0.0, -0.0, 1.0, -1.0, 1e6, -1e6, 1e-6)


def _conv(
    draw: DrawFn,
    spatial: int,
    *,
    groups: int = 1,
    op: str = "Conv",
    oldest: int = 7,
    computed: bool = False,
    **attributes: object,
) -> Instance:
    """The scale is what the same operator makes of the magnitudes; weights may be `computed`."""
    inner, outer = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    x = floats(draw, (draw(st.integers(1, 2)), inner * groups, *[draw(st.integers(5, 7))] * spatial), edges=TAME)
    reach = attributes.get("kernel_shape", [draw(st.integers(1, 3)) for _ in range(spatial)])
    ends = (outer * groups, inner) if op == "Conv" else (inner * groups, outer)
    kernel = floats(draw, (*ends, *reach), edges=(0.0, 1.0))
    channels = outer * groups
    bias = [floats(draw, (channels,), edges=())] if draw(st.booleans()) else []
    version = opset(draw, oldest, 11, 13, 17, 22)
    if groups > 1:
        attributes["group"] = groups
    sizes = [np.abs(it) for it in (x, kernel, *bias)]
    (magnitude,) = outputs_of(
        node(op, *sizes, opset=version, **attributes).model, {f"x{slot}": it for slot, it in enumerate(sizes)}
    )
    scale = magnitude * (kernel.size + 2)
    weights = (kernel, *bias) if computed else map(Constant, (kernel, *bias))
    return node(op, x, *weights, opset=version, scale=scale, **attributes)


def _pool(draw: DrawFn, op: str, spatial: int, edges: tuple[float, ...] = TAME, **attributes: object) -> Instance:
    x = floats(draw, (*shape(draw, 2, 2, 2), *[draw(st.integers(6, 9)) for _ in range(spatial)]), edges=edges)
    return node(op, x, opset=opset(draw, 11, 13, 17), scale=float(np.abs(x).max()) * 64, **attributes)


@case("conv1d-conv2d", lambda draw: _conv(draw, 2))
def _(draw: DrawFn) -> Instance:
    strides = draw(st.sampled_from([{}, {"strides": [2]}, {"dilations": [2]}, {"pads": [1, 2]}]))
    if draw(st.booleans()):
        return _conv(draw, 1, groups=draw(st.integers(1, 2)), **strides)
    strides = {} if "dilations" in strides else strides
    op = draw(st.sampled_from(["MaxPool", "AveragePool"]))
    return _pool(draw, op, 1, kernel_shape=[3], **strides)


@case("auto-pad", lambda draw: _conv(draw, 2, pads=[1, 1, 1, 1]))
def _(draw: DrawFn) -> Instance:
    mode = draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    strides = [draw(st.integers(1, 2)), draw(st.integers(1, 2))]
    if draw(st.booleans()):
        return _conv(draw, 2, auto_pad=mode, strides=strides)
    op = draw(st.sampled_from(["MaxPool", "AveragePool"]))
    return _pool(draw, op, 2, kernel_shape=[3, 2], auto_pad=mode, strides=strides)


@case("conv-strides", lambda draw: _conv(draw, 2, auto_pad="SAME_UPPER", strides=[2, 2]))
def _(draw: DrawFn) -> Instance:
    spatial = draw(st.integers(1, 2))
    strides = [draw(st.integers(2, 3)), draw(st.integers(1, 3))][:spatial]
    more = [{}, {"dilations": [2] * spatial}, {"pads": [1, 2, 0, 2][: 2 * spatial]}, {"auto_pad": "VALID"}]
    return _conv(
        draw, spatial, groups=draw(st.integers(1, 2)), oldest=11, strides=strides, **draw(st.sampled_from(more))
    )


@case("strides-written", lambda draw: _pool(draw, "MaxPool", 2, kernel_shape=[3, 2], strides=[1, 1]))
def _(draw: DrawFn) -> Instance:
    spatial = draw(st.integers(1, 2))
    op = draw(st.sampled_from(["Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"]))
    return _conv(draw, spatial, op=op) if "Conv" in op else _pool(draw, op, spatial, kernel_shape=[3] * spatial)


@case("convtranspose-conv", lambda draw: _conv(draw, 2, op="ConvTranspose", kernel_shape=[3, 3], strides=[2, 2]))
def _(draw: DrawFn) -> Instance:
    size = [draw(st.integers(1, 3)), draw(st.integers(1, 3))]
    return _conv(draw, 2, op="ConvTranspose", kernel_shape=size, strides=size)


@case("conv-dense", lambda draw: _conv(draw, 2))
def _(draw: DrawFn) -> Instance:
    return _conv(draw, draw(st.integers(1, 2)), groups=draw(st.integers(2, 3)))


@case("conv-groups", lambda draw: _conv(draw, 2))
def _(draw: DrawFn) -> Instance:
    spatial, op = draw(st.integers(1, 3)), draw(st.sampled_from(["Conv", "ConvTranspose"]))
    more = draw(st.sampled_from([{}, {"strides": [2] * spatial}, {"pads": [1] * 2 * spatial}]))
    computed = draw(st.booleans())
    return _conv(draw, spatial, groups=draw(st.integers(2, 4)), op=op, oldest=11, computed=computed, **more)


@case("maxpool-cascade", lambda draw: _pool(draw, "MaxPool", 2, kernel_shape=[5, 5], pads=[1, 1, 1, 1]))
def _(draw: DrawFn) -> Instance:
    half = draw(st.integers(2, 4))
    size = [2 * half + 1] * 2
    return _pool(draw, "MaxPool", 2, (*FINITE, np.inf, -np.inf), kernel_shape=size, pads=[half] * 4)


def _pool_of_any_form(draw: DrawFn, op: str, *, rounds_up: bool = False, spatial: int = 0) -> Instance:
    spatial = spatial or draw(st.integers(1, 3 if op == "MaxPool" else 2))
    kernel = [draw(st.integers(2, 4)) for _ in range(spatial)]
    chosen: dict[str, object] = {"kernel_shape": kernel}
    if draw(st.booleans()):
        chosen["strides"] = [draw(st.integers(1, min(size, 3))) for size in kernel]
    if draw(st.booleans()):
        chosen["pads"] = [draw(st.integers(0, size - 1)) for size in (*kernel, *kernel)]
    if op == "MaxPool" and draw(st.booleans()):
        chosen["dilations"] = [draw(st.integers(1, 2 if size < 4 else 1)) for size in kernel]
    if op == "AveragePool" and not rounds_up and draw(st.booleans()):
        chosen["count_include_pad"] = 1
    return _pool(draw, op, spatial, ceil_mode=int(rounds_up), **chosen)


@case("pool-ceil", lambda draw: _pool(draw, "MaxPool", 2, kernel_shape=[3, 2]))
def _(draw: DrawFn) -> Instance:
    made = _pool_of_any_form(draw, draw(st.sampled_from(["MaxPool", "AveragePool"])), rounds_up=True)
    assume(_fits(made))
    return made


def _fits(made: Instance) -> bool:
    """Whether onnx infers as many windows as onnxruntime computes, which leaves out one that would meet pads alone, and
    the pads that the last windows need are smaller than a window, as onnxruntime demands of pads.
    """
    inferred = infer_shapes(made.model).graph.output[0].type.tensor_type.shape.dim
    (out,) = outputs_of(made.model, made.feeds)
    if [dim.dim_value for dim in inferred] != list(out.shape):
        return False
    chosen = {it.name: list(it.ints) for it in made.model.graph.node[0].attribute}
    spatial = out.ndim - 2
    for axis, kernel in enumerate(chosen["kernel_shape"]):
        stride, dilation = (chosen.get(name, [1] * spatial)[axis] for name in ("strides", "dilations"))
        before = chosen.get("pads", [0] * 2 * spatial)[axis]
        reach = (out.shape[axis + 2] - 1) * stride + (kernel - 1) * dilation + 1
        if reach - made.feeds["x0"].shape[axis + 2] - before >= kernel:
            return False
    return True


@case("averagepool-conv", lambda draw: _pool(draw, "AveragePool", 2, kernel_shape=[3, 3], auto_pad="SAME_UPPER"))
def _(draw: DrawFn) -> Instance:
    return _pool_of_any_form(draw, "AveragePool")


@case("maxpool-slices", lambda draw: _pool(draw, "MaxPool", 2, kernel_shape=[3, 3], auto_pad="SAME_UPPER"))
def _(draw: DrawFn) -> Instance:
    return _pool_of_any_form(draw, "MaxPool")


@case("maxpool3d-maxpool2d", lambda draw: _pool(draw, "MaxPool", 2, kernel_shape=[3, 3]))
def _(draw: DrawFn) -> Instance:
    return _pool_of_any_form(draw, "MaxPool", spatial=3)


@case("averagepool3d-averagepool2d", lambda draw: _pool(draw, "AveragePool", 2, kernel_shape=[3, 3]))
def _(draw: DrawFn) -> Instance:
    return _pool_of_any_form(draw, "AveragePool", spatial=3)


@case("averagepool-cascade", lambda draw: _pool(draw, "AveragePool", 2, kernel_shape=[5, 3], strides=[5, 3]))
def _(draw: DrawFn) -> Instance:
    size = draw(st.sampled_from([[4, 4], [6, 3], [4, 6]]))
    return _pool(draw, "AveragePool", 2, kernel_shape=size, strides=size)


MODES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


def _resize(
    draw: DrawFn, out: list[int], *, sizes: bool, mode: str, dims: tuple[int, ...], **attributes: object
) -> Instance:
    x = floats(draw, dims, edges=TAME)
    version = opset(draw, 11, 13, 18, 19)
    # operator set 11 demands a roi even where none is used
    roi = Constant(np.zeros(0, np.float32)) if version == 11 else None
    coordinates = draw(st.sampled_from(MODES))
    ratio = np.array(out, np.float32) / np.array(dims, np.float32)
    given = (
        [Constant(np.zeros(0, np.float32)), Constant(np.array(out))]
        if sizes and version == 11
        else ([None, Constant(np.array(out))] if sizes else [Constant(ratio)])
    )
    return node(
        "Resize",
        x,
        roi,
        *given,
        mode=mode,
        coordinate_transformation_mode=coordinates,
        opset=version,
        scale=float(np.abs(x).max()),
        **attributes,
    )


def _cubic(draw: DrawFn) -> Instance:
    return _resize(draw, [1, 1, 8, 8], sizes=False, mode="cubic", dims=(1, 1, 4, 4))


@case("resize-scales", _cubic)
def _(draw: DrawFn) -> Instance:
    dims = shape(draw, 4, 4)
    factor = draw(st.sampled_from([1, 2, 4]))
    out = [*dims[:2], dims[2] * factor, dims[3] * 2]
    return _resize(draw, out, sizes=True, mode=draw(st.sampled_from(["nearest", "linear"])), dims=dims)


def _cropped(draw: DrawFn) -> Instance:
    dims = (1, 2, draw(st.integers(2, 6)), draw(st.integers(2, 6)))
    x = floats(draw, dims, edges=TAME)
    # places fall on no border of the image, where a last digit decides
    starts = [draw(st.sampled_from([-0.23, 0.0, 0.13])) for _ in range(2)]
    ends = [draw(st.sampled_from([0.71, 1.0, 1.37])) for _ in range(2)]
    region = Constant(np.array([0, 0, *starts, 1, 1, *ends], np.float32))
    lengths = [draw(st.sampled_from([it for it in range(1, 8) if it != size])) for size in dims[2:]]
    sizes = Constant(np.array([*dims[:2], *lengths]))
    beyond = draw(st.sampled_from([0.0, 2.5]))
    chosen = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": beyond}
    scale = float(np.abs(x).max()) + beyond
    return node("Resize", x, region, None, sizes, opset=draw(st.sampled_from([13, 18])), scale=scale, **chosen)


@case("conv3d-conv2d", lambda draw: _conv(draw, 2))
def _(draw: DrawFn) -> Instance:
    more = [{}, {"strides": [2, 1, 2]}, {"dilations": [2, 1, 1]}, {"pads": [1, 0, 1, 2, 1, 0]}]
    return _conv(draw, 3, groups=draw(st.integers(1, 2)), oldest=11, **draw(st.sampled_from(more)))


@case("resize-linear-matmul", _cubic)
def _(draw: DrawFn) -> Instance:
    if draw(st.booleans()):
        return _cropped(draw)
    dims = shape(draw, 3, 4)
    out = [*dims[:-2], draw(st.integers(1, 12)), draw(st.integers(1, 12))]
    if len(dims) == 3:
        out[1] = dims[1]
    assume(tuple(out) != tuple(dims))
    return _resize(draw, out, sizes=True, mode="linear", dims=dims)


@case("resize3d-resize2d", _cubic)
def _(draw: DrawFn) -> Instance:
    dims = shape(draw, 5, 5)
    out = [*dims[:2], *(draw(st.integers(1, 6)) for _ in range(3))]
    return _resize(draw, out, sizes=True, mode="linear", dims=dims)


@case("resize-cubic-matmul", lambda draw: _resize(draw, [1, 1, 8, 8], sizes=True, mode="linear", dims=(1, 1, 4, 4)))
def _(draw: DrawFn) -> Instance:
    dims = shape(draw, 4, 4)
    out = [*dims[:2], draw(st.integers(1, 12)), draw(st.integers(1, 12))]
    assume(tuple(out) != tuple(dims))
    more = {"cubic_coeff_a": draw(st.sampled_from([-0.75, -0.5]))}
    if draw(st.booleans()):
        return _resize(draw, out, sizes=True, mode="cubic", dims=dims, **more)
    # the weights inside add up to enough where the size doubles, but for places that are counted from the first corner
    made = _resize(
        draw,
        [*dims[:2], *(2 * dim for dim in dims[2:])],
        sizes=True,
        mode="cubic",
        dims=dims,
        exclude_outside=1,
        **more,
    )
    assume(not any(it.s == b"asymmetric" for it in made.model.graph.node[0].attribute))
    return made


@case("resize-nearest-gather", _cubic)
def _(draw: DrawFn) -> Instance:
    dims = shape(draw, 2, 4)
    out = [draw(st.integers(1, 12)) for _ in dims]
    assume(tuple(out) != tuple(dims))
    nearest = draw(st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]))
    return _resize(draw, out, sizes=True, mode="nearest", dims=dims, nearest_mode=nearest)


def _uneven(draw: DrawFn) -> Instance:
    return _resize(draw, [1, 1, 3, 5], sizes=True, mode="nearest", dims=(1, 1, 2, 4))


@case("resize-nearest-expand", _uneven)
def _(draw: DrawFn) -> Instance:
    dims = shape(draw, 2, 4)
    factors = [draw(st.integers(1, 4)) for _ in dims]
    factors[0] = max(factors[0], 2) if set(factors) == {1} else factors[0]
    x_mode = draw(
        st.sampled_from(
            [("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")]
        )
    )
    x = floats(draw, dims)
    scales = Constant(np.array(factors, np.float32))
    version = opset(draw, 11, 13, 18)
    roi = Constant(np.zeros(0, np.float32)) if version == 11 else None
    return node(
        "Resize",
        x,
        roi,
        scales,
        mode="nearest",
        coordinate_transformation_mode=x_mode[0],
        nearest_mode=x_mode[1],
        opset=version,
    )


def _gridsample(draw: DrawFn, modes: list[str], paddings: list[str]) -> Instance:
    batch, spatial = draw(st.integers(1, 4)), draw(st.integers(2, 3))
    padding, corners = draw(st.sampled_from(paddings)), draw(st.integers(0, 1))
    least = 1 + (padding == "reflection" and corners)  # one pixel between aligned corners has no inside
    sizes = [draw(st.integers(least, 4)) for _ in range(spatial)]
    # where a place is reflected onto a pixel, rounding decides whether the next one has a weight: infinity, or NaN
    infinite = () if padding == "reflection" else (np.inf,)
    image = floats(draw, (batch, draw(st.integers(1, 4)), *sizes), edges=(0.0, -0.0, 1e4, *infinite))
    edges = (-1.0, 1.0, 0.0, 0.5, -3.0, 900.0, -900.0)
    points = floats(draw, (batch, *shape(draw, spatial, spatial), spatial), spread=0.8, edges=edges)
    # volumes are sampled from operator set 20 on, where the modes have other names
    names = {"bilinear": "linear", "bicubic": "cubic"} if spatial == 3 else {}
    mode = draw(st.sampled_from(modes))
    chosen = {"mode": names.get(mode, mode), "padding_mode": padding}
    largest = float(np.abs(image[np.isfinite(image)]).max(initial=0))
    return node(
        "GridSample", image, points, opset=20 if spatial == 3 else 16, align_corners=corners, scale=largest, **chosen
    )


@case("gridsample-gather", lambda draw: _gridsample(draw, ["bicubic"], ["reflection"]))
def _(draw: DrawFn) -> Instance:
    return _gridsample(draw, ["bilinear", "nearest"], ["zeros", "border", "reflection"])


def _affine(draw: DrawFn, axes: int) -> Instance:
    aligned = draw(st.integers(0, 1))
    batch, *sizes = (draw(st.integers(1 + aligned, 4)) for _ in range(axes + 1))
    theta = floats(draw, (batch, axes, axes + 1), edges=(0.0, 1.0, -1.0, 100.0))
    size = Constant(np.array([batch, 3, *sizes]))
    scale = float(np.abs(theta).max()) * (axes + 1) * (axes + 3)
    return node("AffineGrid", theta, size, opset=20, align_corners=aligned, scale=scale)


def _affine_of_computed_size(draw: DrawFn) -> Instance:
    return node("AffineGrid", floats(draw, (1, 2, 3)), np.array([1, 3, 4, 5]), opset=20)


@case("affinegrid-matmul", _affine_of_computed_size)
def _(draw: DrawFn) -> Instance:
    return _affine(draw, draw(st.integers(2, 3)))


def _deform(draw: DrawFn, dtype: type = np.float32) -> Instance:
    batch, per_group, per_offset = (draw(st.integers(1, 2)) for _ in range(3))
    groups, offset_groups = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    channels = per_group * per_offset * groups * offset_groups
    image, kernel = [draw(st.integers(4, 7)) for _ in "hw"], [draw(st.integers(1, 3)) for _ in "hw"]
    strides, dilations = ([draw(st.integers(1, 2)) for _ in "hw"] for _ in range(2))
    pads = [draw(st.integers(0, 2)) for _ in range(4)]
    out = [
        (image[it] + pads[it] + pads[it + 2] - dilations[it] * (kernel[it] - 1) - 1) // strides[it] + 1 for it in (0, 1)
    ]
    assume(min(out) > 0)
    points, outer = kernel[0] * kernel[1], 2 * groups
    x = floats(draw, (batch, channels, *image), edges=(0.0, -0.0, 1e3), dtype=dtype)
    weight = floats(draw, (outer, channels // groups, *kernel), edges=(0.0, 1.0), dtype=dtype)
    edges = (0.0, 0.5, 1.0, -1.0, 3.0, 900.0, -900.0)
    offset = floats(draw, (batch, offset_groups * points * 2, *out), spread=1.5, edges=edges, dtype=dtype)
    bias = floats(draw, (outer,), edges=(), dtype=dtype) if draw(st.booleans()) else None
    mask = floats(draw, (batch, offset_groups * points, *out), low=0, high=1, edges=(), dtype=dtype)
    masked = mask if draw(st.booleans()) else None
    sizes = {"strides": strides, "dilations": dilations, "pads": pads, "kernel_shape": kernel}
    sums = float(np.abs(weight.astype(np.float64)).sum(axis=(1, 2, 3)).max())
    largest = float(np.abs(x).max()) * (1 if masked is None else float(mask.max()))
    scale = largest * sums * (channels // groups * points + sum(image) + float(np.abs(offset).max()))
    kernels = Constant(weight) if draw(st.booleans()) else weight
    inputs = [x, kernels, offset, bias, masked]
    parts = {"group": groups, "offset_group": offset_groups}
    return node("DeformConv", *inputs, opset=draw(st.sampled_from([19, 22])), scale=scale, **parts, **sizes)


@case("deformconv-gridsample", lambda draw: _deform(draw, np.float64))
def _(draw: DrawFn) -> Instance:
    return _deform(draw)


def _col2im(draw: DrawFn, *, side_by_side: bool) -> Instance:
    block = [draw(st.integers(1, 3)) for _ in "hw"]
    strides, dilations, pads = block, [1, 1], [0] * 4
    if not side_by_side:
        strides, dilations = ([draw(st.integers(1, 3)) for _ in "hw"] for _ in range(2))
        pads = [draw(st.integers(0, 1)) for _ in range(4)]
    places = [draw(st.integers(1, 4)) for _ in "hw"]
    rest = [0 if side_by_side else draw(st.integers(0, strides[it] - 1)) for it in (0, 1)]
    image = [
        (places[it] - 1) * strides[it] + dilations[it] * (block[it] - 1) + 1 - pads[it] - pads[it + 2] + rest[it]
        for it in (0, 1)
    ]
    assume(min(image) > 0)
    x = floats(draw, (2, draw(st.integers(1, 3)) * block[0] * block[1], places[0] * places[1]), edges=TAME)
    scale = float(np.abs(x).max()) * block[0] * block[1]
    sizes = Constant(np.array(image)), Constant(np.array(block))
    return node("Col2Im", x, *sizes, opset=18, strides=strides, dilations=dilations, pads=pads, scale=scale)


def _col2im_with_gaps(draw: DrawFn) -> Instance:
    sizes = Constant(np.array([5, 4])), Constant(np.array([2, 2]))
    return node("Col2Im", floats(draw, (1, 4, 4)), *sizes, opset=18, strides=[2, 2])


@case("col2im-transpose", _col2im_with_gaps)
def _(draw: DrawFn) -> Instance:
    return _col2im(draw, side_by_side=True)


def _col2im_of_doubles(draw: DrawFn) -> Instance:
    sizes = Constant(np.array([4, 4])), Constant(np.array([2, 2]))
    return node("Col2Im", floats(draw, (1, 4, 4), dtype=np.float64), *sizes, opset=18, strides=[2, 2])


@case("col2im-convtranspose", _col2im_of_doubles)
def _(draw: DrawFn) -> Instance:
    return _col2im(draw, side_by_side=False)


def _stft(draw: DrawFn, *, complex_signal: bool = False) -> Instance:
    size, hop, more = (draw(st.integers(low, 12)) for low in (2, 1, 0))
    length = size + hop * draw(st.integers(0, 4)) + more % hop
    last = (2,) if complex_signal else draw(st.sampled_from([(), (1,)]))
    x = floats(draw, (draw(st.integers(1, 3)), length, *last), edges=TAME)
    window = floats(draw, (size,), low=0, high=1, edges=(0.0, 1.0)) if draw(st.booleans()) else None
    given = None if window is None else Constant(window)
    count = Constant(np.array(size)) if window is None or draw(st.booleans()) else None
    scale = float(np.abs(x).max()) * size * (size + 2)
    sides = {"onesided": 0 if complex_signal else draw(st.integers(0, 1))}
    return node("STFT", x, Constant(np.array(hop)), given, count, opset=opset(draw, 17, 21), scale=scale, **sides)


@case("stft-conv", lambda draw: _stft(draw, complex_signal=True))
def _(draw: DrawFn) -> Instance:
    return _stft(draw)


def _dft(draw: DrawFn) -> Instance:
    dims, newest = shape(draw, 2, 3, 6), draw(st.booleans())
    axis = draw(st.integers(0, len(dims) - 1))
    inverse = draw(st.booleans())
    x = floats(draw, (*dims, draw(st.integers(1, 2))), edges=TAME)
    sides = int(not inverse and x.shape[-1] == 1 and draw(st.booleans()))
    length = Constant(np.array(draw(st.integers(1, 9)))) if draw(st.booleans()) else None
    count = dims[axis] if length is None else int(length.array)
    scale = float(np.abs(x).max()) * 2 * count * (2 * count + 2)
    sort = {"inverse": int(inverse), "onesided": sides}
    if newest:
        return node("DFT", x, length, Constant(np.array(axis)), opset=20, scale=scale, **sort)
    return node("DFT", x, length, opset=17, axis=axis, scale=scale, **sort)


def _dft_of_computed_length(draw: DrawFn) -> Instance:
    return node("DFT", floats(draw, (1, 8, 1)), np.array(8), opset=17)


@case("dft-matmul", _dft_of_computed_length)
def _(draw: DrawFn) -> Instance:
    return _dft(draw)


def _lppool(draw: DrawFn, power: int) -> Instance:
    spatial = draw(st.integers(1, 2))
    given = {"strides": [draw(st.integers(1, 3))] * spatial} if draw(st.booleans()) else {}
    given |= {"pads": [draw(st.integers(0, 2)) for _ in range(2 * spatial)]} if draw(st.booleans()) else {}
    return _pool(draw, "LpPool", spatial, kernel_shape=[3, 4][:spatial], p=power, **given)


@case("lppool-averagepool", lambda draw: _lppool(draw, 3))
def _(draw: DrawFn) -> Instance:
    return _lppool(draw, draw(st.integers(1, 2)))
