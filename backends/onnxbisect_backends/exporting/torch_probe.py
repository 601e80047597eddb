"""A script for the user's Python, which needs torch alone: exports modules of a model, one in each child process.

`torch_probe.py SOURCE`, where SOURCE is `FILE.py:FUNCTION`, or `hf:ID` for a model of transformers by its
configuration, with random weights. The function returns `(model, args)`, `(model, args, kwargs)` or `(model, [(args,
kwargs), ...])`. The first line of standard output is JSON with the modules that these inputs reach, or with a problem.
Then each line of standard input is an order, and each answer a line of JSON. What the user's code prints goes to
standard error. A child process holds the loaded model as its parent does, may crash, hang or run out of memory, and
changes the model as it likes.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib.util
import inspect
import json
import os
import re
import resource
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a process that has used a GPU cannot be forked
try:
    import torch
    from torch import nn
    from torch.utils import _pytree as pytree
except ImportError as error:
    print(json.dumps({"problem": "torch", "detail": str(error)}))
    sys.exit(0)

MOST_SIGNATURES = 4
#: Attributes that number a layer; layers that differ in nothing else are one question.
NUMBERS = ("layer_idx", "layer_id", "layer_index", "block_idx", "idx", "index")
#: What others use without calling it.
NOT_CALLED = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.Embedding)
SIMPLE = (bool, int, float, str, type(None))


class WrongSourceError(Exception):
    """The user's source cannot be used; the arguments are the problem's name and details."""


def main(source: str) -> None:
    """Load the model, say what it is, and answer orders."""
    sys.path.pop(0)  # this script's folder
    orders, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)

    def say(answer: object) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        loaded = Loaded(source)
        say(loaded.described())
    except WrongSourceError as problem:
        say({"problem": problem.args[0], "detail": problem.args[1]})
        return
    warm = False
    for line in orders:
        order = json.loads(line)
        if not warm and order["how"]["exporter"] != "legacy":
            warm = warm_up()
        say(in_child(loaded, order, orders))


def in_child(loaded: Loaded, order: Mapping[str, Any], orders: IO[str]) -> Any:
    """The child's answer, or why there is none. The child dies with this process's caller."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            limit_memory(order["memory"])
            answer = json.dumps(Export(loaded, order).answer()).encode()
        except BaseException as error:
            answer = json.dumps({"problem": "probe", "detail": said(error)}).encode()
        with contextlib.suppress(OSError):
            while answer:
                answer = answer[os.write(sink, answer) :]
        os._exit(0)
    os.close(sink)
    answer, deadline, late = b"", time.monotonic() + order["seconds"], False
    while True:
        left = deadline - time.monotonic()
        ready = select.select([source, orders.fileno()], [], [], max(left, 0))[0]
        if source in ready:
            data = os.read(source, 1 << 20)
            if not data:
                break
            answer += data
        elif ready or left <= 0:  # the caller has gone, or the time is up
            late = True
            os.kill(child, signal.SIGKILL)
            break
    os.close(source)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if late:
        return {"problem": "time", "detail": f"{order['seconds']:g}"}
    if not answer:
        return {"problem": "crash", "detail": signal.Signals(-status).name if status < 0 else f"status {status}"}
    return json.loads(answer)


def limit_memory(megabytes: int) -> None:
    """Allow this process so much more memory than it has."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        used = next(int(it.split()[1]) << 10 for it in lines if it.startswith("VmData"))
        resource.setrlimit(resource.RLIMIT_DATA, (used + (megabytes << 20), resource.RLIM_INFINITY))


class Loaded:
    """The model, its inputs, and the modules that they reach."""

    def __init__(self, source: str) -> None:
        torch.set_num_threads(1)  # the threads of a pool do not survive a fork
        self.libraries = tuple(
            f"{Path(it.origin).parent}{os.sep}"
            for it in map(importlib.util.find_spec, ("torch", "onnx", "onnxscript", "onnx_ir"))
            if it and it.origin
        )
        self.training = False
        self.take(self.built(source))
        self.paths = {id(module): path for path, module in self.model.named_modules()}
        self.modules = dict(self.model.named_modules())
        self.calls = self.called()

    def built(self, source: str) -> Any:
        """What the user's function returns."""
        if source.startswith("hf:"):
            try:
                torch.manual_seed(0)
                return of_transformers(source[3:])
            except WrongSourceError:
                raise
            except BaseException as error:
                raise WrongSourceError("raises", said(error, self.libraries)) from None
        name, _, function = source.rpartition(":")
        file = Path(name).absolute()
        sys.path.insert(0, str(file.parent))
        spec = importlib.util.spec_from_file_location(file.stem, file)
        if spec is None or spec.loader is None:
            raise WrongSourceError("file", "it is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        torch.manual_seed(0)
        try:
            spec.loader.exec_module(module)
            build = getattr(module, function, None)
            if not callable(build):
                raise WrongSourceError("missing", function)
            return build()
        except WrongSourceError:
            raise
        except BaseException as error:
            gpu = any(word in str(error) for word in ("CUDA", "NVIDIA", "HIP", "cuda"))
            raise WrongSourceError("gpu" if gpu else "raises", said(error, self.libraries)) from None

    def take(self, built: Any) -> None:
        """Keep the model, in evaluation mode, and its samples, all on the CPU."""
        if not isinstance(built, tuple) or len(built) not in (2, 3) or not isinstance(built[0], nn.Module):
            what = f"a tuple of {len(built)}" if isinstance(built, tuple) else "a " + type(built).__name__
            raise WrongSourceError("returns", what)
        self.model, given = built[0], built[1]
        samples = given if isinstance(given, list) and len(built) == 2 else [(given, *built[2:])]
        self.samples: list[tuple[Any, Any]] = []
        for sample in samples:
            args, kwargs = sample if isinstance(sample, tuple) and len(sample) == 2 else (sample[0], {})
            args = args if isinstance(args, tuple) else (args,)
            if not isinstance(kwargs, dict):
                raise WrongSourceError("returns", "keyword arguments that are a " + type(kwargs).__name__)
            self.samples.append(copied((args, kwargs), to="cpu"))
        self.training = self.model.training
        self.model = self.model.to("cpu").eval()

    def called(self) -> dict[str, tuple[list[str], list[int]]]:
        """The signatures of each module's calls, and how often each was called."""
        calls: dict[str, tuple[list[str], list[int]]] = {}
        foreign: set[str] = set()

        def hook(path: str) -> Any:
            def note(module: Any, args: Any, kwargs: Any) -> None:
                if path and not plain((args, kwargs)):
                    foreign.add(path)
                texts, counts = calls.setdefault(path, ([], []))
                text = signature(args, kwargs)
                if text in texts:
                    counts[texts.index(text)] += 1
                elif len(texts) < MOST_SIGNATURES:
                    texts.append(text)
                    counts.append(1)

            return note

        def end(path: str) -> Any:
            def note(module: Any, args: Any, output: Any) -> None:
                if path and not plain(output):
                    foreign.add(path)

            return note

        handles = [it.register_forward_pre_hook(hook(path), with_kwargs=True) for path, it in self.modules.items()]
        handles += [it.register_forward_hook(end(path)) for path, it in self.modules.items()]
        ran: set[Any] = set()
        sys.setprofile(lambda frame, event, argument: ran.add(frame.f_code) if event == "call" else None)
        try:
            for args, kwargs in self.samples:
                self.run(self.model, *copied((args, kwargs)))
        except Exception as error:
            raise WrongSourceError("run", said(error, self.libraries)) from None
        finally:
            sys.setprofile(None)
            for handle in handles:
                handle.remove()
        self.methods = uncalled({type(self.modules[path]) for path in calls}, ran)
        # a module between which and its caller objects of other classes go cannot be asked alone, but what is in it can
        self.foreign = sorted(foreign)
        return {path: it for path, it in calls.items() if path not in foreign}

    def run(self, module: Any, args: Any, kwargs: Any, seed: int = 0) -> Any:
        """The module's output; the seed is for modules that draw numbers."""
        torch.manual_seed(seed)
        with torch.no_grad():
            return module(*args, **kwargs)

    def described(self) -> dict[str, object]:
        """The modules, for the caller."""
        modules = [
            {"path": path, "cls": type(self.modules[path]).__name__, "key": key(self.modules[path]),
             "signatures": self.calls[path][0], "calls": sum(self.calls[path][1])}
            for path in self.modules if path in self.calls
        ]  # fmt: skip
        reached = {*self.calls, *self.foreign}
        never = [path for path, it in self.modules.items() if path not in reached and not isinstance(it, NOT_CALLED)]
        versions = {"torch": torch.__version__, "python": sys.version.split()[0], "training": self.training}
        return {
            "modules": modules,
            "never": never,
            "methods": self.methods,
            "foreign": self.foreign,
            "samples": len(self.samples),
            **versions,
        }


def uncalled(classes: set[Any], ran: set[Any]) -> list[str]:
    """Methods of the user's classes beside `forward` that did not run, such as `Decoder.generate`."""
    found = []
    for cls in classes:
        for name, it in vars(cls).items():
            own = inspect.isfunction(it) and not name.startswith(("_", "get_", "set_", "reset_", "init_", "extra_repr"))
            # decorated methods, as with torch.no_grad(), share the code of their wrapper
            unrun = own and name != "forward" and inspect.unwrap(it).__code__ not in ran
            if unrun and not cls.__module__.startswith("torch."):
                found.append(f"{cls.__name__}.{name}")
    return sorted(found)


def of_transformers(name: str) -> Any:
    """A model of transformers from the configuration of this name or folder, with inputs that fit it."""
    try:
        import transformers
    except ImportError as error:
        raise WrongSourceError("transformers", str(error)) from None
    config = transformers.AutoConfig.from_pretrained(name)
    architecture = next((it for it in config.architectures or [] if hasattr(transformers, it)), "")
    made: Any = (
        getattr(transformers, architecture)(config) if architecture else transformers.AutoModel.from_config(config)
    )
    takes = list(inspect.signature(made.forward).parameters)
    parts = [config, *(getattr(config, it, None) for it in ("text_config", "vision_config", "backbone_config"))]

    def size(*names: str, otherwise: int) -> Any:
        found = (getattr(part, it, None) for part in parts for it in names if part is not None)
        return next((it for it in found if it), otherwise)

    image = size("image_size", otherwise=224)
    height, width = image if isinstance(image, (list, tuple)) else (image, image)
    words = torch.randint(3, size("vocab_size", otherwise=100), (1, 8))
    frames = 2 * size("max_source_positions", otherwise=1500)
    known = {
        "pixel_values": lambda: torch.randn(1, size("num_channels", otherwise=3), height, width),
        "input_features": lambda: torch.randn(1, size("num_mel_bins", otherwise=80), frames),
        "input_values": lambda: torch.randn(1, 16000),
        "input_ids": lambda: words,
        "attention_mask": lambda: torch.ones_like(words),
        "decoder_input_ids": lambda: words[:, :4],
    }
    inputs = {it: known[it]() for it in takes if it in known}
    if "input_ids" not in inputs:
        inputs.pop("attention_mask", None)
    if made.main_input_name not in inputs:
        raise WrongSourceError("inputs", "{} takes {}".format(type(made).__name__, ", ".join(takes[:4])))
    if "use_cache" in takes:  # a cache is no tensor: it would keep the modules that take it from being asked alone
        inputs["use_cache"] = False
    return made.eval(), (), inputs


def warm_up() -> bool:
    """Load what every export loads, so that children share it: half of the time of a small export."""
    try:
        import torch.onnx
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        made: dict[Any, Any] = {}
        original = ONNXRegistry.from_torchlib.__func__

        def from_torchlib(cls: Any, *args: Any, **kwargs: Any) -> Any:
            known = (args, tuple(sorted(kwargs.items())))
            if known not in made:
                made[known] = original(cls, *args, **kwargs)
            return made[known]

        ONNXRegistry.from_torchlib = classmethod(from_torchlib)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(nn.ReLU(), (torch.zeros(1),), dynamo=True, verbose=False)
    except Exception:  # another version of torch: each export loads it by itself
        return True
    return True


class Export:
    """One order: a module, its stand-ins, and how to export it."""

    def __init__(self, loaded: Loaded, order: Mapping[str, Any]) -> None:
        self.loaded, self.order = loaded, order
        self.path, self.file, self.how = order["module"], order["file"], order["how"]
        self.hidden = [joined(self.path, it) for it in order["stand_ins"]]
        self.module = loaded.modules[self.path]
        self.program: Any = None
        self.constants: dict[str, Any] = {}

    def answer(self) -> dict[str, object]:
        """Export the module, and write samples of it."""
        began = time.monotonic()
        set_up(self.loaded.model, self.how)
        inputs = list(filter(None, (self.captured(args, kwargs) for args, kwargs in self.loaded.samples)))
        if not inputs:
            return {"problem": "never", "detail": ""}
        args, kwargs = inputs[0]
        reference = Recorded(self, args, kwargs)
        if self.hidden and reference.without_tensors():
            return {"problem": "stand-in", "detail": reference.without_tensors()}
        for path in self.hidden:
            stand_in(self, path, reference)
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
                if "TracerWarning" in it.category.__name__ and not it.filename.startswith(self.loaded.libraries)
            ],
        }
        if failure:
            return {**answer, "failure": failure}
        for path in self.hidden:
            del self.loaded.modules[path].forward
        return {**answer, "inputs": inputs_of_file, "samples": self.saved_samples(inputs, reference)}

    def captured(self, args: Any, kwargs: Any) -> Any:
        """The arguments of the module's first call with the signature, when the model runs on these inputs."""
        if not self.path:
            return copied((args, kwargs))
        wanted = self.loaded.calls[self.path][0][self.order["signature"]]
        found: list[Any] = []

        def note(module: Any, args: Any, kwargs: Any) -> None:
            fits = signature(args, kwargs) == wanted or self.how.get("attention") or self.how.get("use_cache") is False
            if fits and not found:
                found.append(copied((args, kwargs)))
                raise CapturedError

        handle = self.module.register_forward_pre_hook(note, with_kwargs=True)
        with contextlib.suppress(CapturedError):
            self.loaded.run(self.loaded.model, *copied((args, kwargs)))
        handle.remove()
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
        named = enumerate(self.program.graph_signature.user_inputs)
        return [[it, f"i{number}"] for number, it in named if isinstance(it, str)]

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
        # the last dict is taken for the keyword arguments: without one, a dict that is an argument would be
        settings = {"dynamo": False, "opset_version": self.how["opset"] or 17}
        torch.onnx.export(self.module, (*args, kwargs), self.file, **settings)
        if not taken:
            return []
        keys = {id(leaf): f"i{number}" for number, leaf in enumerate(leaves)}
        for position, it in enumerate(taken[0]):
            if id(it) not in keys:  # a Python number, which became a tensor
                keys[id(it)] = f"x{position}"
                self.constants[keys[id(it)]] = it.detach().numpy()
        # once more with names, for what has no effect is not among the file's inputs
        names = [keys[id(it)] for it in taken[0]]
        torch.onnx.export(self.module, (*args, kwargs), self.file, input_names=names, **settings)
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
            if place is None and Path(file).is_file() and not file.startswith((*self.loaded.libraries, __file__)):
                place = (file, line)
            if suspect is None and id(here) in self.loaded.paths:
                suspect = self.loaded.paths[id(here)]
            for name in ("node", "n"):
                it = frame.f_locals.get(name)
                if node is None and isinstance(it, torch.fx.Node) and it.op == "call_function":
                    node = it
        ours = any(frame.f_code.co_name == "stand_in_forward" for frame, _ in frames)
        if node is not None and place is None:
            place = self.node_place(node)
            stack = [it[0] for it in node.meta.get("nn_module_stack", {}).values()]
            if stack:
                suspect = joined(self.path, re.sub(r"^(L\['self'\]|_export_root)\.?", "", stack[-1]))
        elif place is None:
            told = re.findall(r'File "([^"]+)", line (\d+)', str(error))
            users = [(file, int(line)) for file, line in told if not file.startswith(self.loaded.libraries)]
            place = users[-1] if users else None
        if suspect is not None and self.path:
            within = suspect == self.path or suspect.startswith(f"{self.path}.")
            suspect = suspect[len(self.path) + 1 :] if within else None
        return {
            "types": [cls.__name__ for it in chain for cls in type(it).__mro__[:-3]],
            "message": clipped(str(chain[-1]) or str(error), 1000),
            "outer": clipped(str(error), 300),
            "op": "" if node is None else str(node.target),
            "stage": "torch.export" if self.program is None and self.how["exporter"] != "legacy" else "onnx",
            "suspect": suspect,
            "stand_in": ours,
            **(self.place(*place) if place else {"file": "", "line": 0, "source": ""}),
        }

    def node_place(self, node: Any) -> tuple[str, int] | None:
        """The user's line that made a node of the traced graph."""
        lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
        users = [(file, int(line)) for file, line in lines if not file.startswith(self.loaded.libraries)]
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

        `iN` are tensors among the arguments, `oN` outputs, `nN` outputs for inputs that differ by rounding, `sP:M:N`
        outputs of the M-th call of a module P that has a stand-in, `tP:M:N` tensors that it got, `xN` constants that
        became inputs.
        """
        try:
            import numpy
        except ImportError:
            return []
        saved: list[str] = []
        shapes = [tuple(it.shape) for it in tensors(inputs[0])]
        for number, (origin, (args, kwargs)) in enumerate(
            [("captured", it) for it in inputs if [tuple(one.shape) for one in tensors(it)] == shapes]
            + [(how, perturbed(inputs[0], how)) for how in ("shuffled", "negated", "random")]
        ):
            try:
                recorded = reference if number == 0 else Recorded(self, args, kwargs)
                arrays = {**recorded.arrays(args, kwargs), **self.constants}
                near = rounded((args, kwargs))
                again = Recorded(self, near[0], near[1], seed=1)
                arrays.update((f"n{n}", it.numpy()) for n, it in enumerate(tensors(again.output)))
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
    """An eager run of a module: its output, and the outputs of modules that get stand-ins, in the order of calls."""

    def __init__(self, export: Export, args: Any, kwargs: Any, seed: int = 0) -> None:
        self.calls: list[tuple[str, str, Any, Any]] = []
        handles = []
        for path in export.hidden:

            def note(module: Any, args: Any, kwargs: Any, output: Any, path: str = path) -> None:
                self.calls.append((path, signature(args, kwargs), copied(output), copied((args, kwargs))))

            handles.append(export.loaded.modules[path].register_forward_hook(note, with_kwargs=True))
        try:
            given = copied((args, kwargs))
            self.output = copied(export.loaded.run(export.module, given[0], given[1], seed))
        finally:
            for handle in handles:
                handle.remove()

    def without_tensors(self) -> str:
        """A module that cannot have a stand-in, because it returns no tensor."""
        return next((path for path, _, output, _ in self.calls if not tensors(output)), "")

    def arrays(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """Everything of the run as numpy arrays, by key."""
        leaves = pytree.tree_flatten((args, kwargs))[0]
        found = {f"i{n}": it.numpy() for n, it in enumerate(leaves) if isinstance(it, torch.Tensor)}
        found.update((f"o{n}", it.numpy()) for n, it in enumerate(tensors(self.output)))
        for number, (path, _, output, given) in enumerate(self.calls):
            call = sum(it[0] == path for it in self.calls[:number])
            found.update((f"s{path}:{call}:{n}", it.numpy()) for n, it in enumerate(tensors(output)))
            found.update((f"t{path}:{call}:{n}", it.numpy()) for n, it in enumerate(tensors(given)))
        return found


def stand_in(export: Export, path: str, recorded: Recorded) -> None:
    """Replace the module's forward: one node of the domain `host` makes outputs of the recorded forms."""
    known = {text: output for where, text, output, _ in reversed(recorded.calls) if where == path}
    name = "host::" + path.replace(".", "_")

    def symbolic(flat: list[Any], made: list[Any]) -> Any:
        ops: Any = getattr(torch.onnx, "ops", None)
        if not hasattr(ops, "symbolic_multi_out"):
            raise RuntimeError("this version of torch has no torch.onnx.ops.symbolic_multi_out; 2.8 has it")
        forms = {"dtypes": [it.dtype for it in made], "shapes": [tuple(it.shape) for it in made]}
        return ops.symbolic_multi_out(name, flat, {"module": path}, version=1, **forms)

    def traced(*flat: Any) -> Any:
        made = tensors(next(iter(known.values())))

        class StandIn(torch.autograd.Function):  # type: ignore[misc] # torch is not there for mypy
            @staticmethod
            def forward(context: Any, *flat: Any) -> Any:
                return tuple(it.clone() for it in made)

            @staticmethod
            def symbolic(graph: Any, *flat: Any) -> Any:
                return graph.op(name, *flat, outputs=len(made), module_s=path)

        outputs = StandIn.apply(*flat)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    def stand_in_forward(*args: Any, **kwargs: Any) -> Any:
        output = known.get(signature(args, kwargs), next(iter(known.values())))
        leaves, spec = pytree.tree_flatten(output)
        made = [it for it in leaves if isinstance(it, torch.Tensor)]
        flat = tensors((args, kwargs))
        outputs = iter(traced(*flat) if export.how["exporter"] == "legacy" else symbolic(flat, made))
        return pytree.tree_unflatten([next(outputs) if isinstance(it, torch.Tensor) else it for it in leaves], spec)

    export.loaded.modules[path].forward = stand_in_forward


def set_up(model: Any, how: Mapping[str, Any]) -> None:
    """Apply settings of transformers' models."""
    if how.get("attention") and hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation(how["attention"])
    if how.get("use_cache") is False:
        for module in model.modules():
            if getattr(getattr(module, "config", None), "use_cache", None):
                module.config.use_cache = False


def tensors(tree: Any) -> list[Any]:
    """The tensors among the leaves."""
    return [it for it in pytree.tree_flatten(tree)[0] if isinstance(it, torch.Tensor)]


def plain(tree: Any) -> bool:
    """Whether all leaves are of classes that every exporter takes."""
    known = (*SIMPLE, torch.Tensor, torch.dtype, torch.device, torch.layout)
    return all(isinstance(it, known) for it in pytree.tree_flatten(tree)[0])


def copied(tree: Any, to: str | None = None) -> Any:
    """A copy with tensors of its own, which later calls do not change."""

    def copy_of(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().to(to).clone() if to else leaf.detach().clone()
        return leaf if isinstance(leaf, (*SIMPLE, nn.Module)) else copy.deepcopy(leaf)

    return pytree.tree_map(copy_of, tree)


def perturbed(inputs: Any, how: str) -> Any:
    """Other numbers of the same forms and, but for signs, of the same range."""
    chance: Any = torch.Generator().manual_seed(len(how))

    def other(it: Any) -> Any:
        if not isinstance(it, torch.Tensor) or it.is_complex() or not it.numel():
            return it
        mixed = it.flatten()[torch.randperm(it.numel(), generator=chance)].view(it.shape)
        if it.is_floating_point():
            if how == "shuffled":
                return mixed
            spread = it.float().std() if it.numel() > 1 else it.float().abs().max()
            return -mixed if how == "negated" else (torch.randn(it.shape, generator=chance) * spread).to(it.dtype)
        if it.dtype == torch.bool:  # a flag, or a mask of which all is set, is the same when shuffled
            return ~mixed if how == "negated" else mixed
        if it.numel() == 1:
            return it + 1 if how != "negated" else torch.clamp(it - 1, min=min(0, int(it.min())))
        low, high = int(it.min()), int(it.max())
        if low == high:  # most often a mask of which all is set: padding is at its end, and no row is without a token
            low, high = min(low, 0), max(high, 1)
            made = torch.randint(low, high + 1, it.shape, generator=chance).sort(-1, descending=True).values
            made[..., :1] = high if it.shape[-1] > 1 else made
            return made.to(it.dtype)
        return mixed if how == "shuffled" else torch.randint(low, high + 1, it.shape, generator=chance).to(it.dtype)

    return pytree.tree_map(other, copied(inputs))


def rounded(inputs: Any) -> Any:
    """The inputs within their rounding: where the outputs differ by more, no comparison is due."""
    return pytree.tree_map(
        lambda it: it * (1 + 1e-6) if isinstance(it, torch.Tensor) and it.is_floating_point() else it, inputs
    )


def signature(args: Any, kwargs: Any) -> str:
    """The form of a call: each tensor's type and shape, everything else by its value."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    texts = []
    for it in leaves:
        if isinstance(it, torch.Tensor):
            shape = "x".join(map(str, it.shape)) or "scalar"
            texts.append("{} {}".format(str(it.dtype).removeprefix("torch."), shape))
        else:
            texts.append(clipped(repr(it), 60) if isinstance(it, SIMPLE) else type(it).__name__)
    return "{} #{}".format(", ".join(texts), hashlib.sha256(str(spec).encode()).hexdigest()[:6])


def key(module: Any) -> str:
    """A digest of what decides whether a module exports: classes, simple attributes, forms of weights; not values."""
    parts = []
    for path, it in module.named_modules():
        own = {
            name: value if isinstance(value, (*SIMPLE, tuple)) else getattr(value, "__qualname__", type(value).__name__)
            for name, value in vars(it).items()
            if not name.startswith("_") and name not in (*NUMBERS, "training")
        }
        weights = [
            (name, str(value.dtype), tuple(value.shape))
            for values in (it._parameters, it._buffers)
            for name, value in values.items()
            if value is not None
        ]
        parts.append((path, type(it).__module__, type(it).__qualname__, sorted(own.items(), key=str), weights))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def joined(base: str, path: str) -> str:
    """The path of a module inside of another one."""
    return base + "." + path if base and path else base or path


def clipped(text: object, most: int) -> str:
    """The text on one line, and not longer."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def chained(error: BaseException) -> list[BaseException]:
    """The error and what caused it, the first cause last."""
    chain = [error]
    while (deeper := chain[-1].__cause__ or chain[-1].__context__) is not None and deeper not in chain:
        chain.append(deeper)
    return chain


def said(error: BaseException, libraries: Sequence[str] = ()) -> str:
    """The error in one line, with the deepest line of the user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [it for it in frames if it.filename != __file__ and not it.filename.startswith(("<", *libraries))]
    where = f" ({Path(users[-1].filename).name}:{users[-1].lineno})" if users else ""
    return clipped(f"{type(error).__name__}: {error}", 300) + where


if __name__ == "__main__":
    main(sys.argv[1])
