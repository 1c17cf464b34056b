"""Parameters that a Python module holds for an operator of the library, under the library's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

# What these compute, the library computes from their parameters.
KNOWN = {layer.forward for layer in (nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Embedding)}


class ParameterGroup(nn.Module):
    """Layers and parameters under a common name, such as `tdc.fwd`. The library computes with them."""

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={tuple(p.shape)}" for name, p in self._parameters.items() if p is not None)


def add_parameters(
    module: nn.Module,
    names: Sequence[str],
    shapes: Sequence[Tensor],
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    norm_eps: float | None = None,
) -> None:
    """Empty parameters; "a.b.weight" is the parameter `weight` of the layer `b` of the group `a`.

    Matrices are of `nn.Linear`, vectors of the conditioner's `nn.LayerNorm` or of a `nn.RMSNorm` with norm_eps.
    """
    given = dict(zip(names, shapes, strict=True))
    for name, shape in given.items():
        *groups, last = name.split(".")
        owner = module
        for depth, group in enumerate(groups, 1):
            if group not in owner._modules:
                is_layer = last == "weight" and depth == len(groups)
                path = ".".join(groups)
                layer = _layer(path, shape, f"{path}.bias" in given, norm_eps) if is_layer else ParameterGroup()
                owner.add_module(group, layer)
            owner = owner.get_submodule(group)
        owner.register_parameter(last, nn.Parameter(torch.empty(shape.shape, device=device, dtype=dtype)))


def parameters_of(module: nn.Module, names: Sequence[str]) -> list[Tensor]:
    """What the library is to compute with, by name at every call: wrappers (FSDP, parametrizations) exchange them."""
    values: list[Tensor] = []
    for name in names:
        *path, last = name.split(".")
        owner: Any = module
        for part in path:
            owner = getattr(owner, part)
        values.append(getattr(owner, last) if owner is module else _value(owner, last, ".".join(path)))
    return values


def _layer(name: str, weight: Tensor, bias: bool, norm_eps: float | None) -> nn.Module:
    if weight.dim() == 2:
        return nn.Linear(weight.shape[1], weight.shape[0], bias, device="meta")
    if ".tdc." in f".{name}":
        return nn.LayerNorm(weight.shape[0], bias=bias, device="meta")
    return nn.RMSNorm(weight.shape[0], eps=norm_eps, device="meta")


def _value(owner: Any, name: str, path: str) -> Tensor:
    """The parameter of a layer, with all that has been hung on it; a sentence if that cannot be."""
    if owner._forward_hooks or owner._forward_pre_hooks or owner._backward_hooks or owner._backward_pre_hooks:
        raise ValueError(
            f"{path} has hooks, which would not be called: the library computes with its parameters, in one call for "
            "all layers. Hook the mixer or the model, or parametrize the weight (torch.nn.utils.parametrize)"
        )
    kind: Any = type(owner)
    if (kind.forward in KNOWN or kind is ParameterGroup) and "forward" not in vars(owner):
        value: Tensor = getattr(owner, name)
        return value
    if not hasattr(owner, "lora_A") or not hasattr(owner, "base_layer"):
        raise ValueError(
            f"{path} is a {kind.__name__}, whose forward would not be called: the library computes with the parameters "
            "of torch's own layer. Expected that, perhaps parametrized (torch.nn.utils.parametrize), or PEFT's LoRA"
        )
    return _with_lora(owner, name, path)


def _with_lora(owner: Any, name: str, path: str) -> Tensor:
    """The weight of PEFT's lora.Linear as it is after merging, with gradients for its matrices."""
    if owner.disable_adapters and owner.merged:
        owner.unmerge()  # as its forward does
    value = _value(owner.base_layer, name, f"{path}.base_layer")
    if owner.disable_adapters or owner.merged or name != "weight":
        return value
    for adapter in owner.active_adapters:
        if adapter not in owner.lora_A:
            continue
        dropout: Any = owner.lora_dropout[adapter]
        if adapter in owner.lora_variant or owner.lora_bias.get(adapter):
            raise ValueError(f"{path}: expected plain LoRA without bias, got a variant of it; merge it first (merge())")
        if dropout.training and getattr(dropout, "p", 0) > 0:
            raise ValueError(
                f"{path}: LoRA's weights are added to the layer's, which leaves no place for its dropout in training: "
                f"expected lora_dropout=0, got {dropout.p}"
            )
        value = value + owner.get_delta_weight(adapter).to(value.dtype)
    return value
