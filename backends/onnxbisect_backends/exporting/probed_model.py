"""The model of the user's function: its samples, and what they call. Runs in the user's Python, see torch_probe.py."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import linecache
import os
import sys
import traceback
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from probed_calls import SIMPLE, Calls, CallWatch, UsedWeights, bases, clipped, copied, is_code, uncalled
from torch import nn

#: Attributes that number a layer; layers that differ in nothing else are one question.
NUMBERS = ("layer_idx", "layer_id", "layer_index", "block_idx", "idx", "index")

LIBRARY_NAMES = ("torch", "onnx", "onnxscript", "onnx_ir")
#: Folders of code that is not the user's; packages may stand inside of Python's own.
LIBRARIES = tuple(
    f"{Path(it).parent}{os.sep}"
    for it in (__file__, *(getattr(importlib.util.find_spec(it), "origin", None) for it in LIBRARY_NAMES))
    if it
)
STANDARD = f"{Path(os.__file__).parent}{os.sep}"


class WrongSourceError(Exception):
    """The user's source cannot be used; the arguments are the problem's name and details."""


class Loaded:
    """The model, its inputs, and the modules that they reach."""

    def __init__(self, source: str) -> None:
        torch.set_num_threads(1)  # the threads of a pool do not survive a fork
        torch.compiler.set_stance("force_eager")  # what torch.compile makes of a module computes the same
        self.training = False
        self.take(self.built(source))
        # a module of torch.jit.script does not call what is in it from Python
        scripted = [it for it in self.model.modules() if isinstance(it, torch.jit.ScriptModule)]
        inside = {id(part) for it in scripted for part in list(it.modules())[1:]}
        self.modules = {path: it for path, it in self.model.named_modules() if id(it) not in inside}
        self.paths = {id(module): path for path, module in self.modules.items()}
        for module in self.modules.values():
            self.bind_late(module)
        #: The module and the name of the method of each path that is called.
        self.targets = {path: (module, "forward") for path, module in self.modules.items()}
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
                raise WrongSourceError("raises", said(error)) from None
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
            raise WrongSourceError("gpu" if gpu else "raises", said(error)) from None

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

    def bind_late(self, module: Any) -> None:
        """Let methods of other modules that this one keeps be looked up when it calls them: stand-ins replace them."""
        for attribute, it in list(vars(module).items()):
            other = getattr(it, "__self__", None)
            if isinstance(it, MethodType) and other is not module and id(other) in self.paths:

                @functools.wraps(it)
                def late(*args: Any, method: Any = it, **kwargs: Any) -> Any:
                    return getattr(method.__self__, method.__name__)(*args, **kwargs)

                setattr(module, attribute, late)

    def called(self) -> dict[str, Calls]:
        """What can be asked alone, in the order of the modules, and how it was called."""
        found: dict[str, Calls] = {}

        def begin(path: str, args: Any, kwargs: Any) -> None:
            found.setdefault(path, Calls()).note(args, kwargs, tuple(it for _, it in watch.active))

        watch = CallWatch(self, begin, lambda path, output: found[path].end(output))
        self.run_samples(watch)
        # what has nothing to do with tensors, such as a property that says a size, is a part of its caller
        methods = {path for path in found if path not in self.modules}
        found = {path: it for path, it in found.items() if path not in methods or it.tensors}
        reached = {self.paths[id(self.targets[path][0])] for path in found}
        self.never = self.unreached(reached)
        never = tuple(f"{it}." for it in self.never)
        others = [it for path, it in self.modules.items() if not f"{path}.".startswith(never)]
        self.methods = sorted({it for module in others for it in uncalled(module, watch.ran)})
        # what takes or returns other things than tensors cannot be asked alone, but what is in it can
        self.foreign = sorted(
            path for path, it in found.items() if path and (it.foreign or (path in methods and not it.makes))
        )
        alone = found.keys() - set(self.foreign)
        for path, it in found.items():
            stacks = ([one for one in stack if one in alone and one != path] for stack in it.stacks)
            it.callers = sorted({stack[-1] for stack in stacks if stack})
        order = {id(module): number for number, module in enumerate(self.modules.values())}
        return {path: found[path] for path in sorted(alone, key=lambda it: (order[id(self.targets[it][0])], it))}

    def run_samples(self, mode: Any) -> None:
        """Run the model on all samples."""
        try:
            with mode:
                for args, kwargs in self.samples:
                    self.run(self.model, *copied((args, kwargs)))
        except Exception as error:
            raise WrongSourceError("run", said(error)) from None

    def unreached(self, reached: set[str]) -> list[str]:
        """The outermost modules that are not called; others use the weights of some, such as a tied embedding."""

        def left() -> list[str]:
            above = {"", *reached, *(it[:end] for it in reached for end in range(len(it)) if it[end] == ".")}
            return [path for path in self.modules if path not in above and path.rpartition(".")[0] in above]

        def own(module: Any) -> list[Any]:
            return [*module.parameters(recurse=False), *module.buffers(recurse=False)]

        of_called = {id(it) for path in reached for it in own(self.modules[path])}
        owners = {id(it): path for path, module in self.modules.items() if path not in reached for it in own(module)}
        if any(id(it) in owners for path in left() for it in self.modules[path].parameters()):
            weights = UsedWeights({it: path for it, path in owners.items() if it not in of_called})
            self.run_samples(weights)
            reached |= weights.used
        return [path for path in left() if any(map(own, self.modules[path].modules())) or is_code(self.modules[path])]

    def run(self, module: Any, args: Any, kwargs: Any, seed: int = 0) -> Any:
        """The module's output; the seed is for modules that draw numbers."""
        torch.manual_seed(seed)
        with torch.no_grad():
            return module(*args, **kwargs)

    def described(self) -> dict[str, object]:
        """The modules, for the caller."""
        modules = []
        for path, it in self.calls.items():
            module, method = self.targets[path]
            plain_call = method == "forward"
            modules.append(
                {
                    "path": path,
                    "cls": getattr(module, "original_name", type(module).__name__)
                    + ("" if plain_call else f".{method}"),
                    "key": key(module) + ("" if plain_call else f".{method}"),
                    "signatures": list(it.signatures),
                    "calls": sum(it.signatures.values()),
                    "callers": it.callers,
                    "home": self.paths[id(module)],
                    "defined": defined(type(module), method),
                }
            )
        parts = [*self.model.modules()]
        settings = {
            "attention": any(hasattr(it, "set_attn_implementation") for it in parts),
            "use_cache": any(hasattr(getattr(it, "config", None), "use_cache") for it in parts),
        }
        return {
            "modules": modules,
            "settings": [name for name, there in settings.items() if there],
            "never": self.never,
            "methods": self.methods,
            "foreign": self.foreign,
            "samples": len(self.samples),
            "torch": torch.__version__,
            "python": sys.version.split()[0],
            "training": self.training,
        }


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


def defined(cls: Any, method: str) -> dict[str, object]:
    """The line of the user's code that defines a method."""
    found = inspect.getattr_static(cls, method, None)
    code = getattr(inspect.unwrap(getattr(found, "fget", None) or found), "__code__", None)
    if code is None or cls not in bases(cls):
        return {}
    for number in range(code.co_firstlineno, code.co_firstlineno + 20):  # decorators are before it
        if (line := linecache.getline(code.co_filename, number).strip()).startswith("def "):
            return {"file": code.co_filename, "line": number, "source": clipped(line, 200)}
    return {}


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
        if isinstance(it, torch.jit.ScriptModule):  # the class of all of them is one
            own["code"] = str(it.graph)
        parts.append((path, type(it).__module__, type(it).__qualname__, sorted(own.items(), key=str), weights))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def chained(error: BaseException) -> list[BaseException]:
    """The error and what caused it, the first cause last."""
    chain = [error]
    while (deeper := chain[-1].__cause__ or chain[-1].__context__) is not None and deeper not in chain:
        chain.append(deeper)
    return chain


def of_user(file: str) -> bool:
    """Whether a file of a traceback is neither torch's, nor Python's or this script's own."""
    own = file.startswith(LIBRARIES) or (file.startswith(STANDARD) and "-packages" + os.sep not in file)
    return not own and Path(file).is_file()


def said(error: BaseException) -> str:
    """The error in one line, with the deepest line of the user's code."""
    users = [it for it in traceback.extract_tb(error.__traceback__) if of_user(it.filename)]
    where = f" ({Path(users[-1].filename).name}:{users[-1].lineno})" if users else ""
    return f"{clipped(f'{type(error).__name__}: {error}', 300)}{where}"
