"""Ten modules, one for each row of a table of components that are said not to export to ONNX; for a Python with torch.

`written` has them as they are written: Python flags, lists and dicts decide. In `by_value` tensors decide.
"""

import torch
from torch import Tensor, nn

WIDTH = 8


class Norm(nn.Module):
    """A function chosen by a flag."""

    def forward(self, x: Tensor, flag: bool | Tensor) -> Tensor:
        forward = torch.tanh if flag else torch.sigmoid
        return forward(x)


class Halves(nn.Module):
    """Divide and conquer: half of the batch passes by."""

    def forward(self, x: Tensor, flag: bool | Tensor) -> Tensor:
        other = x[:0]
        if flag:
            other, x = x[x.shape[0] // 2 :], x[: x.shape[0] // 2]
        return torch.cat((x * 2, other))


class Positions(nn.Module):
    """A conditional expression."""

    def forward(self, x: Tensor, flag: bool | Tensor) -> Tensor:
        return (x + x.mean(0) if flag else x).cos()


class Attention(nn.Module):
    """An attention of its own, which takes its module from outside."""

    def __init__(self, scorer: nn.Module) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, x: Tensor, flag: bool | Tensor) -> Tensor:
        scores = self.scorer(x) @ x.T
        if flag:
            scores = scores / WIDTH**0.5
        return scores.softmax(-1) @ x


class Features(nn.Module):
    """A list of tensors."""

    def forward(self, features: list[Tensor], flag: bool | Tensor) -> Tensor:
        return sum(features[1 if flag else 0 :], torch.zeros_like(features[0]))


class Pick(nn.Module):
    """An index out of the inputs."""

    def forward(self, x: Tensor, image: int | Tensor) -> Tensor:
        return x[int(image)] * 3


class Branches(nn.Module):
    """Three ways."""

    def forward(self, x: Tensor, way: int | Tensor) -> Tensor:
        if way == 0:
            return x.exp()
        if way == 1:
            return x.neg()
        return x[-1:] + x


class Frames(nn.Module):
    """A loop over as many frames as there are."""

    def forward(self, x: Tensor, frames: int | Tensor) -> Tensor:
        for _ in range(int(frames)):
            x = torch.sin(x) + 1
        return x


class Memory(nn.Module):
    """A dict of former frames, some of which are missing."""

    def forward(self, x: Tensor, bank: dict[int, Tensor], frame: int | Tensor) -> Tensor:
        for back in range(1, 4):
            entry = bank.get(int(frame) - back)
            if entry is None:
                continue
            x = x + entry
        return x


class Prompt(nn.Module):
    """As many parts concatenated as are valid."""

    def forward(self, x: Tensor, valid: list[int] | Tensor) -> Tensor:
        return torch.cat([x, x[torch.nonzero(valid)[:, 0]] if isinstance(valid, Tensor) else x[valid]]).relu()


class Rows(nn.Module):
    """All of them; they take the same numbers as Python's or as tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.halves, self.positions = Norm(), Halves(), Positions()
        self.attention, self.features, self.pick = Attention(nn.Linear(WIDTH, WIDTH)), Features(), Pick()
        self.branches, self.frames, self.memory, self.prompt = Branches(), Frames(), Memory(), Prompt()

    def forward(
        self,
        x: Tensor,
        flag: bool | Tensor,
        number: int | Tensor,
        bank: dict[int, Tensor],
        valid: list[int] | Tensor,
    ) -> tuple[Tensor, ...]:
        return (
            self.norm(x, flag),
            self.halves(x, flag),
            self.positions(x, flag),
            self.attention(x, flag),
            self.features([x, x.tanh(), x.sin()], flag),
            self.pick(x, number),
            self.branches(x, number),
            self.frames(x, number),
            self.memory(x, bank, number),
            self.prompt(x, valid),
        )


def _inputs() -> tuple[nn.Module, Tensor, dict[int, Tensor]]:
    torch.manual_seed(0)
    return Rows().eval(), torch.randn(4, WIDTH), {0: torch.randn(4, WIDTH), -2: torch.randn(4, WIDTH)}


def written() -> tuple[object, ...]:
    """Decided in Python."""
    model, x, bank = _inputs()
    return model, (x, True, 1, bank, [0, 2])


def by_value() -> tuple[object, ...]:
    """Decided by tensors."""
    model, x, bank = _inputs()
    return model, (x, torch.tensor(True), torch.tensor(1), bank, torch.tensor([True, False, True, False]))
