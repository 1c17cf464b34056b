"""Parameters that a Python module holds for an operator of the library, under the library's names."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import torch
from torch import Tensor, nn


class ParameterGroup(nn.Module):
    """Parameters under a common name, such as `W_v.weight` and `W_v.bias`. The library computes with them."""

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={tuple(p.shape)}" for name, p in self._parameters.items() if p is not None)


def add_parameters(
    module: nn.Module,
    names: Sequence[str],
    shapes: Sequence[Tensor],
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Empty parameters; "a.b.weight" is the parameter `weight` of the group `b` of the group `a`."""
    for name, shape in zip(names, shapes, strict=True):
        *groups, last = name.split(".")
        owner = module
        for group in groups:
            if group not in owner._modules:
                owner.add_module(group, ParameterGroup())
            owner = owner.get_submodule(group)
        owner.register_parameter(last, nn.Parameter(torch.empty(shape.shape, device=device, dtype=dtype)))


def parameters_of(module: nn.Module, names: Sequence[str]) -> list[Tensor]:
    """By name at every call: wrappers (FSDP, parametrizations, functional_call) exchange them."""
    return [attrgetter(name)(module) for name in names]
