"""Exports one module in a child process, and records samples of it. Runs in the user's Python, see torch_probe.py."""

from __future__ import annotations

import inspect
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from probed_calls import CallWatch, Method, Positional, clipped, copied, joined, named_or_positional, signature, tensors
from probed_inputs import left_padded, perturbed, rounded
from probed_model import Loaded, chained, of_user
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree


class Export:
    """One order: a module, its stand-ins, and how to export it."""

    def __init__(self, loaded: Loaded, order: Mapping[str, Any]) -> None:
        self.loaded, self.order = loaded, order
        self.path, self.file, self.how = order["module"], order["file"], order["how"]
        self.hidden = order["stand_ins"]
        module, method = loaded.targets[self.path]
        self.module = module if method == "forward" else Method(module, method)
        self.program: Any = None
        self.constants: dict[str, Any] = {}

    def answer(self) -> dict[str, object]:
        """Export the module, and write samples of it."""
        began = time.monotonic()
        set_up(self.loaded.model, self.how)
        inputs = list(filter(None, (self.captured(args, kwargs) for args, kwargs in self.loaded.samples)))
        if not inputs:
            return {"problem": "never", "detail": ""}
        if self.hidden and self.how["exporter"] != "legacy" and not hasattr(torch.onnx, "ops"):
            return {"problem": "version", "detail": torch.__version__}
        args, kwargs = inputs[0]
        reference = Recorded(self, args, kwargs)
        if self.hidden and reference.without_tensors():
            return {"problem": "stand-in", "detail": reference.without_tensors()}
        undo = [stand_in(self, path, reference) for path in self.hidden]
        failure, inputs_of_file = None, []
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                inputs_of_file = (self.legacy if self.how["exporter"] == "legacy" else self.dynamo)(args, kwargs)
            except BaseException as error:
                failure = self.failed(error)
        answer: dict[str, object] = {
            "seconds": time.monotonic() - began,
            "warnings": [
                {**self.place(it.filename, it.lineno), "message": str(it.message)}
                for it in heard
                if "TracerWarning" in it.category.__name__ and of_user(it.filename)
            ],
        }
        if failure:
            return {**answer, "failure": failure}
        for it in undo:
            it()
        return {**answer, "inputs": inputs_of_file, "samples": self.saved_samples(inputs, reference)}

    def captured(self, args: Any, kwargs: Any) -> Any:
        """The arguments of the module's first call with the signature, when the model runs on these inputs."""
        if not self.path:
            return copied((args, kwargs))
        wanted = list(self.loaded.calls[self.path].signatures)[self.order["signature"]]
        found: list[Any] = []

        def note(path: str, args: Any, kwargs: Any) -> None:
            fits = signature(args, kwargs) == wanted or self.how.get("attention") or self.how.get("use_cache") is False
            if path == self.path and fits:
                found.append(copied((args, kwargs)))
                raise CapturedError

        with suppress(CapturedError), CallWatch(self.loaded, note):
            self.loaded.run(self.loaded.model, *copied((args, kwargs)))
        return found[0] if found else None

    def dynamo(self, args: Any, kwargs: Any) -> list[list[str]]:
        """Export with torch.export; returns the inputs by name and key."""
        args, kwargs = copied((args, kwargs))
        self.program = torch.export.export(self.module, args, kwargs, strict=self.how["strict"])
        opset = {"opset_version": self.how["opset"]} if self.how["opset"] else {}
        made = torch.onnx.export(self.program, (), None, dynamo=True, verbose=False, **opset)
        got = made.model.opset_imports[""]
        if opset and got != self.how["opset"]:  # the exporter logs this, and goes on
            raise RuntimeError(
                "the exporter cannot make opset {}: its file has opset {}".format(self.how["opset"], got)
            )
        made.save(self.file)
        named = [it for it in enumerate(self.program.graph_signature.user_inputs) if isinstance(it[1], str)]
        # the exporter renames an input that is an output, too
        return [[it + suffix, f"i{number}"] for suffix in ("_orig", "") for number, it in named]

    def legacy(self, args: Any, kwargs: Any) -> list[list[str]]:
        """Export with the TorchScript tracer; returns the inputs, whose names are the keys."""
        args, kwargs = copied((args, kwargs))
        leaves: list[Any] = pytree.tree_flatten((args, kwargs))[0]
        taken: list[Any] = []
        tracing: Any = sys.modules["torch.jit._trace"]
        flatten = tracing._flatten

        def noted(values: Any) -> Any:
            flat = flatten(values)
            taken.append(flat[0])
            return flat

        tracing._flatten = noted
        module = self.module
        if self.path and not kwargs.keys() <= named_or_positional(module):
            # this exporter passes all by position; the model itself has to be exported as it is
            module, args, kwargs = Positional(module, len(args), list(kwargs)), (*args, *kwargs.values()), {}
        # the last dict is taken for the keyword arguments: without one, a dict that is an argument would be
        given = (*args, kwargs) if args or kwargs else ()
        settings = {"dynamo": False, "opset_version": self.how["opset"] or 17}
        torch.onnx.export(module, given, self.file, **settings)
        if not taken:
            return []
        keys = {id(leaf): f"i{number}" for number, leaf in enumerate(leaves)}
        for position, it in enumerate(taken[0]):
            if id(it) not in keys:  # a Python number, which became a tensor
                keys[id(it)] = f"x{position}"
                self.constants[keys[id(it)]] = it.detach().numpy()
        # once more with names, for what has no effect is not among the file's inputs
        names = [keys[id(it)] for it in taken[0]]
        torch.onnx.export(module, given, self.file, input_names=names, **settings)
        return [[it, it] for it in names]

    def failed(self, error: BaseException) -> dict[str, object]:
        """What failed and where: the deepest line of the user's code, and the deepest module that was at work."""
        chain = chained(error)
        place: tuple[str, int] | None = None
        suspect: str | None = None
        node: Any = None
        frames = [pair for it in reversed(chain) for pair in [*traceback.walk_tb(it.__traceback__)][::-1]]
        for frame, line in frames:  # the first cause first, and of each the deepest frame first
            file = frame.f_code.co_filename
            here = frame.f_locals.get(frame.f_code.co_varnames[0]) if frame.f_code.co_argcount else None
            if place is None and of_user(file):
                place = (file, line)
            home = self.loaded.paths.get(id(here))
            if suspect is None and home is not None:
                paths = (joined(home, frame.f_code.co_name), home)
                suspect = next((it for it in paths if it in self.loaded.calls), None)
            for name in ("node", "n"):
                value = frame.f_locals.get(name)
                if place is None and isinstance(value, torch._C.Node):  # of the older exporter
                    told = re.findall(r"(\S+)\((\d+)\):", value.sourceRange())
                    place = next(((name, int(at)) for name, at in told if of_user(name)), None)
                if node is None and isinstance(value, torch.fx.Node) and value.op == "call_function":
                    node = value
        ours = any(frame.f_code.co_name == "stand_in_forward" for frame, _ in frames)
        packed = [it for frame, _ in frames for it in frame.f_locals.values() if isinstance(it, PackedSequence)]
        if node is not None and place is None:
            place = self.node_place(node)
            suspect = self.node_module(node) or suspect
        elif place is None:
            told = re.findall(r'File "([^"]+)", line (\d+)', str(error))
            users = [(file, int(line)) for file, line in told if of_user(file)]
            place = users[-1] if users else None
        return {
            "types": [
                *(cls.__name__ for it in chain for cls in type(it).__mro__[:-3]),
                *(type(it).__name__ for it in packed),
            ],
            "message": clipped(str(chain[-1]) or str(error), 1000),
            "outer": clipped(str(error), 300),
            "op": "" if node is None else str(node.target),
            "stage": "torch.export" if self.program is None and self.how["exporter"] != "legacy" else "onnx",
            "suspect": suspect,
            "stand_in": ours or "stand_in_forward" in str(error),
            **(self.place(*place) if place else {"file": "", "line": 0, "source": ""}),
        }

    def node_module(self, node: Any) -> str | None:
        """The deepest module that made a node of the traced graph and can be asked alone."""
        for path, _ in reversed([*node.meta.get("nn_module_stack", {}).values()]):
            with suppress(AttributeError):
                module = self.module.get_submodule(re.sub(r"^(L\['self'\]|_export_root)\.?", "", path))
                found: str | None = self.loaded.paths.get(id(module))
                if found in self.loaded.calls:
                    return found
        return None

    def node_place(self, node: Any) -> tuple[str, int] | None:
        """The user's line that made a node of the traced graph."""
        lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
        users = [(file, int(line)) for file, line in lines if of_user(file)]
        return users[-1] if users else None

    def place(self, file: str, line: int) -> dict[str, object]:
        """A line of code, with its text."""
        try:
            source = Path(file).read_text(encoding="utf-8").splitlines()[line - 1].strip()
        except (OSError, ValueError, IndexError):
            source = ""
        return {"file": file, "line": line, "source": clipped(source, 200)}

    def saved_samples(self, inputs: Sequence[Any], reference: Recorded) -> list[str]:
        """Files with inputs and eager outputs, of the captured inputs and of perturbed ones.

        numpy has no bfloat16: such tensors are float32, and `b` has their keys. `iN` are tensors among the arguments,
        `oN` outputs, `nN` outputs for inputs that differ by rounding, `sP:M:N` outputs of the M-th call of a module P
        that has a stand-in, `tP:M:N` tensors that it got, `xN` constants that became inputs, and `m` the mask of a
        model that generates text, padded on the left.
        """
        try:
            import numpy
        except ImportError:
            return []
        saved: list[str] = []
        shapes = [tuple(it.shape) for it in tensors(inputs[0])]
        padded, mask = left_padded(inputs[0], self.module)
        for number, (origin, (args, kwargs)) in enumerate(
            [("captured", it) for it in inputs if [tuple(one.shape) for one in tensors(it)] == shapes]
            + [(how, perturbed(inputs[0], how)) for how in ("shuffled", "negated", "random")]
            + [("left-padded", padded)] * (mask is not None)
        ):
            try:
                recorded = reference if number == 0 else Recorded(self, args, kwargs)
                arrays = {**recorded.arrays(args, kwargs), **self.constants}
                near = rounded((args, kwargs))
                again = Recorded(self, near[0], near[1], seed=1)
                arrays.update((f"n{n}", as_numpy(it)) for n, it in enumerate(tensors(again.output)))
                if origin == "left-padded":
                    arrays["m"] = mask.numpy()
                    if not any(it.shape[:2] == mask.shape for it in tensors(recorded.output)):
                        continue
            except Exception:  # the module itself does not take these numbers
                if origin == "captured":
                    raise
                continue
            numpy.savez(f"{self.file}.{len(saved)}.npz", **arrays)
            saved.append(origin)
        return saved


class CapturedError(BaseException):
    """Ends a run of the model: the inputs of the module in question are known."""


class Recorded:
    """An eager run of a module: its output, and what modules that get stand-ins made, in the order of calls."""

    def __init__(self, export: Export, args: Any, kwargs: Any, seed: int = 0) -> None:
        self.calls: list[tuple[str, str, Any, Any]] = []
        given: list[Any] = []  # of the modules at work that get stand-ins: only the outermost one does its work

        def begin(path: str, args: Any, kwargs: Any) -> None:
            if path in export.hidden:
                given.append(copied((args, kwargs)))

        def end(path: str, output: Any) -> None:
            if path in export.hidden:
                inputs = given.pop()
                if not given:
                    self.calls.append((path, signature(*inputs), copied(output), inputs))

        own = copied((args, kwargs))
        with CallWatch(export.loaded, begin, end):
            self.output = copied(export.loaded.run(export.module, own[0], own[1], seed))

    def without_tensors(self) -> str:
        """A module that cannot have a stand-in, because it returns no tensor."""
        return next((path for path, _, output, _ in self.calls if not tensors(output)), "")

    def arrays(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """Everything of the run as numpy arrays, by key."""
        leaves = pytree.tree_flatten((args, kwargs))[0]
        found = {f"i{n}": it for n, it in enumerate(leaves) if isinstance(it, torch.Tensor)}
        found.update((f"o{n}", it) for n, it in enumerate(tensors(self.output)))
        for number, (path, _, output, given) in enumerate(self.calls):
            call = sum(it[0] == path for it in self.calls[:number])
            found.update((f"s{path}:{call}:{n}", it) for n, it in enumerate(tensors(output)))
            found.update((f"t{path}:{call}:{n}", it) for n, it in enumerate(tensors(given)))
        wide = [key for key, it in found.items() if it.dtype == torch.bfloat16]
        return {**{key: as_numpy(it) for key, it in found.items()}, **({"b": wide} if wide else {})}


def as_numpy(tensor: Any) -> Any:
    """The tensor as an array, of bfloat16 in float32, which holds it."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def stand_in(export: Export, path: str, recorded: Recorded) -> Callable[[], None]:
    """Let one node of the domain `host` do what the module does, and make outputs of the recorded forms.

    Returns what takes it back.
    """
    known = {text: output for where, text, output, _ in reversed(recorded.calls) if where == path}
    name = "host::" + path.replace(".", "_")

    def symbolic(flat: list[Any], made: list[Any]) -> Any:
        ops: Any = torch.onnx.ops
        forms = {"dtypes": [it.dtype for it in made], "shapes": [tuple(it.shape) for it in made]}
        return ops.symbolic_multi_out(name, flat, {"module": path}, version=1, **forms)

    def traced(*flat: Any) -> Any:
        made = tensors(next(iter(known.values())))

        class StandIn(torch.autograd.Function):
            @staticmethod
            def forward(context: Any, *flat: Any) -> Any:
                return tuple(it.clone() for it in made)

            @staticmethod
            def symbolic(graph: Any, *flat: Any) -> Any:
                return graph.op(name, *flat, outputs=len(made), module_s=path)

        outputs = StandIn.apply(*flat)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    def stand_in_forward(*args: Any, **kwargs: Any) -> Any:
        output = next(iter(known.values()))
        if len(known) > 1:
            output = known.get(signature(args, kwargs), output)
        leaves, spec = pytree.tree_flatten(output)
        made = [it for it in leaves if isinstance(it, torch.Tensor)]
        flat = tensors((args, kwargs))
        outputs = iter(traced(*flat) if export.how["exporter"] == "legacy" else symbolic(flat, made))
        return pytree.tree_unflatten([next(outputs) if isinstance(it, torch.Tensor) else it for it in leaves], spec)

    module, method = export.loaded.targets[path]
    found: Any = inspect.getattr_static(type(module), method)
    if isinstance(found, property):
        owner = next(it for it in type(module).__mro__ if method in vars(it))
        getter: Any = found.fget
        setattr(owner, method, property(lambda it: stand_in_forward() if it is module else getter(it)))
        return lambda: setattr(owner, method, found)
    # torch.export looks at objects of C++ wherever they are, such as the weights of what torch quantized
    objects = [
        (vars(it), key, value)
        for it in module.modules()
        for key, value in vars(it).items()
        if type(value) is torch.ScriptObject
    ]
    for holder, key, _ in objects:
        del holder[key]
    attributes = vars(module)  # modules of torch.jit.script set an attribute elsewhere
    own = attributes.get(method)
    attributes[method] = stand_in_forward

    def undo() -> None:
        del attributes[method]
        if own is not None:
            attributes[method] = own
        for holder, key, value in objects:
            holder[key] = value

    return undo


def set_up(model: Any, how: Mapping[str, Any]) -> None:
    """Apply settings of transformers' models."""
    for module in model.modules():
        if how.get("attention") and hasattr(module, "set_attn_implementation"):
            module.set_attn_implementation(how["attention"])
        if how.get("use_cache") is False and getattr(getattr(module, "config", None), "use_cache", None):
            module.config.use_cache = False
