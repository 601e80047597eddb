"""The form in which a target takes probes. Backends declare it, `onnxbisect.cut` applies it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ProbeFormat:
    """What must hold of every probe file so that the compiler judges the ops and not the packaging.

    `input_dtypes`: the dtypes that graph inputs may have, as onnxruntime spells them without `tensor()`
    (`"float"`, `"int64"`, `"bool"`); None accepts all. Probes grow backwards until their boundary has only these.
    `self_contained`: weights inside the file, not beside it. `safe_names`: boundary tensors have only
    `[A-Za-z0-9_]`. `explicit_defaults`: attributes left at their schema default are written out, and the kernel shapes
    of convolutions, which default to those of their weights. `unwritten_defaults`: attributes, as `Op.attribute`, that
    are left out all the same, and taken out where they say what their absence says.
    `constants_as_initializers`: Constant nodes become initializers. `covered`: op types that the target trips over
    where they make a graph output; a Relu follows them there, except where the output is the model's own.
    `folds`: the target computes what constants alone make before it looks at the ops. Where it does not, a computed
    constant is another thing than an initializer, and comes into probes with what makes it; outputs that would get lost
    are kept (`onnxbisect.cut.no_constant_folding`).
    """

    input_dtypes: frozenset[str] | None = None
    self_contained: bool = False
    safe_names: bool = False
    explicit_defaults: bool = False
    unwritten_defaults: tuple[str, ...] = ()
    constants_as_initializers: bool = False
    covered: tuple[str, ...] = ()
    folds: bool = True
