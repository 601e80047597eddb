"""What can be said of options before any is given."""

from enum import StrEnum
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from onnxbisect_backends.options import OptionHelp, WorthTrying, explained
from onnxbisect_backends.registry import LoadedBackend, available


class Mode(StrEnum):
    FAST = "fast"
    SMALL = "small"


class Inner(BaseModel):
    level: int = 3


class Options(BaseModel):
    chip: Literal["mc1", "mc2"] = Field(default="mc1", description="the chip")
    mode: Mode | None = None
    processor: Literal["", "p1"] = ""
    cores: Literal[1, 2] = 2
    verify: bool = True
    profile: str | None = Field(default=None, examples=["a", "b"])
    names: tuple[str, ...] = ("x", "y")
    quant: Inner = Inner()


def test_choices_and_defaults_are_as_they_are_typed() -> None:
    assert explained(Options) == (
        OptionHelp(name="chip", default="mc1", choices=("mc1", "mc2"), help="the chip"),
        OptionHelp(name="mode", choices=("fast", "small")),
        OptionHelp(name="processor", choices=("p1",)),
        OptionHelp(name="cores", default="2", choices=("1", "2")),
        OptionHelp(name="verify", default="true", choices=("true", "false")),
        OptionHelp(name="profile", choices=("a", "b")),
        OptionHelp(name="names", default="x,y"),
        OptionHelp(name="quant.level", default="3"),
    )


def test_a_backend_may_say_itself_what_it_takes() -> None:
    pulsar2 = available()["pulsar2"]
    assert isinstance(pulsar2, LoadedBackend)
    told = {option.name: option for option in pulsar2.options}
    assert "AX650" in told["target_hardware"].choices
    made = pulsar2.factory({name: told[name].default for name in ("target_hardware", "quant.calibration_method")})
    assert made.options["build"]["target_hardware"] == told["target_hardware"].default


class Tried(BaseModel):
    precision: Annotated[Literal["fp16", "bf16"], WorthTrying()] = "fp16"
    level: Annotated[int, WorthTrying(values=("1", "2"))] = 3
    version: Annotated[str, WorthTrying(values=lambda: ("1.0", "2.0"))] = ""
    skip: Annotated[tuple[str, ...], WorthTrying(pattern=r"skip=(\w+)")] = ()
    speed: Literal["fast", "slow"] = "fast"


def test_an_option_says_which_values_are_worth_trying() -> None:
    told = {option.name: option for option in explained(Tried)}
    assert {name: option.alternatives for name, option in told.items()} == {
        "precision": ("fp16", "bf16"),
        "level": ("1", "2"),
        "version": ("1.0", "2.0"),
        "skip": (),
        "speed": (),
    }


def test_what_the_compiler_says_of_culprits_adds_to_a_list() -> None:
    skip = next(option for option in explained(Tried) if option.name == "skip")
    messages = ("failed in fuse_a (skip=fuse_a goes without it)", "skip=fuse_b", "skip=fuse_a", "another one")
    assert skip.alternatives_in("", messages) == "fuse_a,fuse_b"
    assert skip.alternatives_in("fuse_a, fuse_c", messages) == "fuse_a,fuse_c,fuse_b"
    assert skip.alternatives_in("fuse_a,fuse_b", messages) == ""
    assert skip.alternatives_in("", ("no word of it",)) == ""


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("qnn", {"precision", "optimization", "soc_model", "version"}),
        ("rknn", {"target", "optimization_level", "disable_rules", "version"}),
        ("tpu-mlir", {"processor", "quantize", "version"}),
        ("iree", {"backend", "version"}),
        ("openvino", {"version"}),
        ("trtexec", {"precision"}),
        ("pulsar2", {"target_hardware"}),
    ],
)
def test_vendors_compilers_say_it(backend: str, options: set[str]) -> None:
    it = available()[backend]
    assert isinstance(it, LoadedBackend)
    assert {option.name for option in it.options if option.worth_trying is not None} == options
