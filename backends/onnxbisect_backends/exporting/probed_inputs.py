"""Other inputs of a module, on which an export is compared with it. Runs in the user's Python, see torch_probe.py."""

from __future__ import annotations

from typing import Any

import torch
from probed_calls import copied, tensors
from torch.utils import _pytree as pytree


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
        low, high = int(it.min()), int(it.max())
        if it.dim() and it.shape[-1] > 1 and (low == high or (it.dim() > 1 and low >= 0 and high <= 1)):
            return other_mask(it, chance)
        if it.dtype == torch.bool:
            return ~mixed if how == "negated" else mixed
        if it.numel() == 1:
            return it + 1 if how != "negated" else torch.clamp(it - 1, min=min(0, low))
        return mixed if how == "shuffled" else torch.randint(low, high + 1, it.shape, generator=chance).to(it.dtype)

    return pytree.tree_map(other, copied(inputs))


def other_mask(mask: Any, chance: Any) -> Any:
    """A mask that its maker could have made: padded at its end, and with a token in each row.

    What a row without one computes is undefined, and PyTorch and ONNX differ in it.
    """
    length, low, high = mask.shape[-1], min(int(mask.min()), 0), max(int(mask.max()), 1)
    tokens = torch.arange(length) < torch.randint(1, length + 1, (*mask.shape[:-1], 1), generator=chance)
    steps = mask.int().diff(dim=-1)
    if mask.dtype == torch.bool and not mask.any():  # one of what to leave out
        return ~tokens
    if bool((steps <= 0).all()):
        return torch.where(tokens, high, low).to(mask.dtype)
    if bool((steps >= 0).all()):  # padded on the left, or one of what to leave out
        return mask[torch.randperm(len(mask), generator=chance)]
    return mask[..., torch.randperm(length, generator=chance)]


def left_padded(inputs: Any, model: Any) -> tuple[Any, Any]:
    """The inputs with the mask of a model that generates text padded on the left, and that mask; None without one.

    Other models are not made for it, and compute anything there.
    """
    made = copied(inputs)
    generates = any(hasattr(it, "generate") for it in model.modules())
    masks = [it for it in tensors(made) if it.dim() == 2 and it.shape[-1] > 1 and not it.is_floating_point()]
    found = next((it for it in masks if generates and bool((it == 1).all())), None)
    if found is not None:
        found[:1, : found.shape[-1] // 2] = 0
    return made, found


def rounded(inputs: Any) -> Any:
    """The inputs within their rounding: where the outputs differ by more, no comparison is due."""

    def near(it: Any) -> Any:
        if isinstance(it, torch.Tensor) and it.is_floating_point():
            return it * (1 + max(1e-6, torch.finfo(it.dtype).eps))
        return it

    return pytree.tree_map(near, inputs)
