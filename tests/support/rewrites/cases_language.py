"""Attention with a cache, and rotary embeddings, inside and just outside of the rules' conditions."""

import numpy as np
from hypothesis import strategies as st

from support.rewrites.cases_contrib import MS, TAME, scores_scale
from support.rewrites.instances import Constant, Instance, case, floats, integers, node

DrawFn = st.DrawFn


def _rotary(draw: DrawFn, *, packed: int = 0) -> Instance:
    batch, steps, heads, half = (draw(st.integers(1, 3)) for _ in range(4))
    width = 2 * half
    table = floats(draw, (8, half), edges=TAME, spread=1)
    sines = floats(draw, (8, half), edges=TAME, spread=1)
    dims = (batch, heads, steps, width) if draw(st.booleans()) else (batch, steps, heads * width)
    x = floats(draw, dims, edges=TAME)
    positions = integers(draw, (batch, steps), 0, 7) if draw(st.booleans()) else integers(draw, (1,), 0, 8 - steps)
    scale = 2 * float(np.abs(x).max()) * float(max(np.abs(table).max(), np.abs(sines).max()))
    chosen = {"interleaved": draw(st.integers(0, 1)), "is_packed_batching": packed}
    return node("RotaryEmbedding", x, positions, Constant(table), Constant(sines), scale=scale, **chosen, **MS)


@case("rotaryembedding-parts", lambda draw: _rotary(draw, packed=1))
def _(draw: DrawFn) -> Instance:
    return _rotary(draw)


def _grouped(draw: DrawFn, *, full: bool = False, causal: int = 1) -> Instance:
    """A prompt, or steps behind a cache, which may have more room; rows of a batch with keys of their own number."""
    batch, groups, share, half = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2)), 8
    heads, width = groups * share, 2 * half
    prompt = draw(st.booleans())
    steps = draw(st.integers(1, 4)) if prompt or batch == 1 else 1  # all that onnxruntime takes
    earlier = 0 if prompt else draw(st.integers(1, 3))
    total = earlier + steps
    past = total + draw(st.integers(0, 2)) if draw(st.booleans()) else earlier  # a cache that has room, or grows
    row = total - 1
    lengths = [row] * batch if full or prompt else [draw(st.integers(steps, row)) for _ in range(batch)]
    lengths[-1] = row  # the longest row has as many as all
    packed = draw(st.booleans())
    widths = [(heads + 2 * groups) * width] if packed else [heads * width, groups * width, groups * width]
    given = [floats(draw, (batch, steps, each), edges=TAME, spread=1) for each in widths]
    cache = [floats(draw, (batch, groups, past, width), edges=TAME, spread=1) if past else None for _ in range(2)]
    tables = [floats(draw, (9, half), edges=TAME, spread=1) for _ in range(2)]
    turned = draw(st.booleans())
    positions = integers(draw, (batch, steps), 0, 3) if turned and draw(st.booleans()) else None
    bias = floats(draw, (batch, 1, steps, total), edges=TAME) if draw(st.booleans()) else None
    sink = floats(draw, (heads,), edges=TAME) if draw(st.booleans()) else None
    counts = np.array(lengths, np.int32)
    largest = max(float(np.abs(it).max()) for it in (*given, *(it for it in cache if it is not None))) + 1
    turn = 2 * max(float(np.abs(table).max()) for table in tables) + 1
    score = np.full((1, width), largest * turn)
    chosen = {"num_heads": heads, "kv_num_heads": groups, "do_rotary": int(turned), "causal": causal}
    chosen["rotary_interleaved"] = draw(st.integers(0, 1))
    chosen["local_window_size"] = draw(st.sampled_from([-1, 2])) if causal else -1
    chosen["smooth_softmax"] = 0 if sink is not None else draw(st.integers(0, 1))
    rest = (
        *([None, None] if packed else given[1:]),
        *cache,
        Constant(counts) if draw(st.booleans()) else counts,
        Constant(np.array(total, np.int32)),
        *(Constant(table) if turned else None for table in tables),
        *(positions, bias, sink),
    )
    return node(
        "GroupQueryAttention",
        given[0],
        *rest,
        outputs=3,
        scale=scores_scale(score, score, np.full((1, 1), largest), 10 * width + total),
        softcap=draw(st.sampled_from([0.0, 2.0])),
        **chosen,
        **MS,
    )


@case("groupqueryattention-parts", lambda draw: _grouped(draw, causal=0))
def _(draw: DrawFn) -> Instance:
    return _grouped(draw)


@case("groupqueryattention-full", lambda draw: _grouped(draw, causal=0))
def _(draw: DrawFn) -> Instance:
    return _grouped(draw, full=True)
