"""A small segmenter with one module that stays on the host: `export`, `run`, `fix`, `split` in docs/export.md."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ScoreGate(nn.Module):
    """Branches on numbers, so that it does not export."""

    def forward(self, x: Tensor) -> Tensor:
        if x.mean() > 0:
            return x * 2
        return x - 1


class Segmenter(nn.Module):
    """A backbone, the gate, and a head with an activation that Qualcomm's HTP does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GELU(), nn.Conv2d(8, 8, 3, 1, 1))
        self.gate = ScoreGate()
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, image: Tensor) -> Tensor:
        features = self.gate(F.celu(self.backbone(image)))
        return self.head(F.celu(features)).softmax(1)


def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model and an example of its inputs."""
    torch.manual_seed(0)
    return Segmenter().eval(), (torch.randn(1, 3, 32, 32),)
