"""A video tracker in small, whose parts export to ONNX or do not: `onnx-bisect export examples/tracker.py:build`."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH = 16


class FusionLayer(nn.Module):
    """Branches on Python flags, a split into halves, and an attention of its own: all of it exports."""

    def __init__(self, pre_norm: bool) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.norm, self.query, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def attend(self, x: Tensor, memory: Tensor) -> Tensor:
        weights = (self.query(x) @ memory.transpose(1, 2) / WIDTH**0.5).softmax(-1)
        return self.out(weights @ memory)

    def forward_pre(self, x: Tensor, memory: Tensor) -> Tensor:
        return x + self.attend(self.norm(x), memory)

    def forward_post(self, x: Tensor, memory: Tensor) -> Tensor:
        return self.norm(x + self.attend(x, memory))

    def forward(self, x: Tensor, memory: Tensor, dac: bool = False, pos: Tensor | None = None) -> Tensor:
        forward = self.forward_pre if self.pre_norm else self.forward_post
        if dac:
            assert x.shape[0] % 2 == 0
            other, x = x[x.shape[0] // 2 :], x[: x.shape[0] // 2]
        x = forward(x, memory[: x.shape[0]] + pos if pos is not None else memory[: x.shape[0]])
        return torch.cat((x, other)) if dac else x


class MaskHead(nn.Module):
    """Takes a list of tensors, which exports, one input for each."""

    def forward(self, features: list[Tensor], queries: Tensor) -> Tensor:
        total = features[0]
        for each in features[1:]:
            total = total + F.interpolate(each, size=total.shape[-2:])
        return torch.einsum("bqc,bchw->bqhw", queries, total)


class PickImage(nn.Module):
    """Takes its index out of a tensor."""

    def forward(self, features: Tensor, image: Tensor) -> Tensor:
        return features[int(image)]


class ScoreGate(nn.Module):
    """Branches on numbers."""

    def forward(self, x: Tensor) -> Tensor:
        if x.mean() > 0:
            return x * 2
        return x - 1


class Frames(nn.Module):
    """Runs as often as a tensor says."""

    def forward(self, x: Tensor, frames: Tensor) -> Tensor:
        for _ in range(int(frames)):
            x = torch.tanh(x) + 1
        return x


class MemoryBank(nn.Module):
    """Looks frames up in a dict, and skips those that are missing: exports for the frames of the example."""

    def forward(self, x: Tensor, frame: int, bank: dict[str, dict[int, Tensor]]) -> Tensor:
        found = [x]
        for back in range(1, 4):
            entry = bank["frames"].get(frame - back)
            if entry is None:
                continue
            found.append(entry)
        return torch.cat(found, dim=1)


class NumpyPositions(nn.Module):
    """Leaves torch for numpy."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.from_numpy(np.sin(x.detach().numpy()))


class Whitening(nn.Module):
    """Uses an op that has no ONNX form."""

    def forward(self, x: Tensor) -> Tensor:
        u, _, v = torch.linalg.svd(x, full_matrices=False)
        return u @ v


class Tracker(nn.Module):
    """All of them."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, WIDTH, 3, 2, 1), nn.GELU())
        self.fusion = nn.ModuleList([FusionLayer(True), FusionLayer(False)])
        self.head, self.pick, self.gate, self.frames = MaskHead(), PickImage(), ScoreGate(), Frames()
        self.memory, self.positions, self.whitening = MemoryBank(), NumpyPositions(), Whitening()

    def forward(
        self,
        image: Tensor,
        queries: Tensor,
        which: Tensor,
        frames: Tensor,
        frame: int,
        bank: dict[str, dict[int, Tensor]],
    ) -> Tensor:
        features = self.backbone(image)
        memory = self.memory(features.flatten(2).transpose(1, 2), frame, bank)
        queries = self.frames(self.gate(self.positions(queries)), frames)
        queries = self.fusion[0](queries, memory, dac=True)
        queries = self.whitening(self.fusion[1](queries, memory, pos=memory.mean(1, keepdim=True)))
        return self.pick(self.head([features, F.avg_pool2d(features, 2)], queries), which)


def build() -> tuple[nn.Module, tuple[object, ...], dict[str, object]]:
    """The model and an example of its inputs."""
    torch.manual_seed(0)
    bank = {"frames": {3: torch.randn(2, 4, WIDTH), 1: torch.randn(2, 4, WIDTH)}}
    image, queries = torch.randn(2, 3, 16, 16), torch.rand(2, 3, WIDTH)
    return Tracker(), (image, queries, torch.tensor(1), torch.tensor(2)), {"frame": 4, "bank": bank}
