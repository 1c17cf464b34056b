"""The public operators as functions of their tensors, and what it means that two of them agree."""

from collections.abc import Callable

import pytest
import torch
from fem import ops
from ops_cases import ATTENTION, GATES, NEWTON, SSM, Case, tensors_in
from support import error
from torch import Tensor

CHANNEL = ("value", "beta", "log_weight", "log_decay")
CAUSAL = [
    Case("softmax_read", ATTENTION, {"scale": 0.3, "window": 3}),
    Case("linear_read", (*ATTENTION, "log_decay"), initial=True),
    Case("channel_read", CHANNEL),
    Case("ssm_read", SSM),
    Case("decay_scan", ("u",)),
    Case("gated_read", GATES),
    Case("softmax_read", (*ATTENTION, "bias", "slopes")),
    Case("free_energy_read", ("p", "v", "beta")),
    Case("newton_read", NEWTON, {"rho": 0.5}),
]
ENCODER = [
    Case("free_energy_attention", ATTENTION, {"causal": False}),
    Case("free_energy_attention", (*ATTENTION, "bias", "slopes"), {"causal": False}),
    Case("linear_read", ATTENTION, {"causal": False}),
    Case("channel_read", CHANNEL, {"causal": False}),
    Case("ssm_read", SSM, {"causal": False}),
]
TOKENS = 5  # like no other size: what is equal once, a compiled graph takes to be equal always
FLOAT32 = 64 * 2.0**-23  # a few float32 sums in another order

Arguments = dict[str, Tensor]
all_cases = pytest.mark.parametrize("case", [*CAUSAL, *ENCODER], ids=lambda case: case.id)


def function_of(case: Case) -> Callable[[Arguments], tuple[Tensor, ...]]:
    function = getattr(ops, case.op)
    return lambda arguments: tuple(tensors_in(function(**arguments, **case.options)))


def leaves_of(case: Case, length: int = TOKENS, dtype: torch.dtype = torch.float32, seed: int = 0) -> Arguments:
    return {name: x for name, x in case.arguments(dtype, length, seed).items() if isinstance(x, Tensor)}


def loss_of(results: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([x.to(torch.promote_types(x.dtype, torch.float32)).square().sum() for x in results]).sum()


def gradients(results: tuple[Tensor, ...], arguments: Arguments) -> tuple[Tensor, ...]:
    differentiable = tuple(x for x in results if x.requires_grad)
    return torch.autograd.grad(loss_of(differentiable), [x for x in arguments.values() if x.requires_grad])


def assert_equal(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for a, e in zip(actual, expected, strict=True):
        assert torch.equal(a, e)


def assert_near(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...], bound: float) -> None:
    for a, e in zip(actual, expected, strict=True):
        assert error(a, e) <= bound
