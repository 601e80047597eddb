"""What can be said of options before any is given."""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, Field

from onnxbisect_backends.options import OptionHelp, explained
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
