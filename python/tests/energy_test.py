"""Energies: against autograd and attention, under torch's tools, and errors."""

import doctest
import math
from typing import Any

import pytest
import torch
from fem import energy, ops
from support import FLOAT64, error
from torch import Tensor
from torch.library import opcheck

CASES: list[dict[str, Any]] = [
    {},
    {"temperature": 0.3},
    {"potential": "product", "causal": False},
    {"potential": "linear"},
    {"potential": "linear", "log_decay": True},
]
of_cases = pytest.mark.parametrize("case", CASES, ids=str)


def drawn(case: dict[str, Any], dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
    """Query, key, a direction, and the options."""
    torch.manual_seed(0)
    query, key, direction = torch.randn(3, 2, 6, 3, 4, dtype=dtype).unbind()
    options = dict(case)
    if "log_decay" in case:
        options["log_decay"] = -torch.rand(2, 6, 3, dtype=dtype)
    return query.requires_grad_(), key, direction, options


@of_cases
def test_derivatives_are_those_of_autograd(case: dict[str, Any]) -> None:
    query, key, direction, options = drawn(case)
    (first,) = torch.autograd.grad(energy.energy(query, key, **options).sum(), query, create_graph=True)
    assert error(energy.energy_gradient(query, key, **options), first) <= FLOAT64
    (second,) = torch.autograd.grad((first * direction).sum(), query)
    assert error(energy.energy_hessian_product(query, key, direction, **options), second) <= FLOAT64


def test_a_newton_step_finds_where_the_gradient_of_a_parabola_vanishes() -> None:
    query, key, _, _ = drawn({})
    options: dict[str, Any] = {"potential": "elastic", "temperature": 1e9}  # all keys weigh the same
    step, smallest = energy.newton_step(query, key, **options)
    assert energy.energy_gradient(query + step, key, **options).abs().max() <= 1e-6
    torch.testing.assert_close(smallest, torch.ones_like(smallest))


def test_minus_the_gradient_of_products_is_attention() -> None:
    query, key, _, _ = drawn({})
    attended = ops.softmax_read(query, key, key).mean
    assert error(-energy.energy_gradient(query, key, potential="product"), attended) <= FLOAT64
    given = energy.energy(query, key, potential="product", temperature=math.sqrt(4))
    assert torch.equal(energy.energy(query, key, potential="product"), given)


@of_cases
def test_opcheck(case: dict[str, Any]) -> None:
    query, key, direction, options = drawn(case)
    for name in ("energy", "energy_gradient", "newton_step"):
        opcheck(getattr(torch.ops.fem, name).default, (query, key), options)
    opcheck(torch.ops.fem.energy_hessian_product.default, (query, key, direction), options)


@of_cases
def test_vmap_is_a_loop(case: dict[str, Any]) -> None:
    query, key, _, options = drawn(case)
    rows = [{n: x[i : i + 1] if isinstance(x, Tensor) else x for n, x in options.items()} for i in range(2)]
    looped = [energy.energy_gradient(query[i : i + 1], key[i : i + 1], **rows[i]) for i in range(2)]
    decay = options.pop("log_decay", None)

    def one(q: Tensor, k: Tensor, g: Tensor | None) -> Tensor:
        more = {} if g is None else {"log_decay": g[None]}
        return energy.energy_gradient(q[None], k[None], **options, **more)

    mapped = torch.func.vmap(one, in_dims=(0, 0, None if decay is None else 0))(query, key, decay)
    torch.testing.assert_close(mapped, torch.stack(looped))


def test_autocast_does_not_round_what_is_looked_at() -> None:
    query, key, _, _ = drawn({}, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        cast = energy.energy(query, key)
    assert torch.equal(cast, energy.energy(query, key))


def test_wrong_arguments_are_refused() -> None:
    query, key, direction, _ = drawn({})
    with pytest.raises(ValueError, match='energy: expected potential to be one of "elastic", "product", "linear", got'):
        energy.energy(query, key, potential="elastics")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="energy: expected a positive temperature, got 0"):
        energy.energy_gradient(query, key, temperature=0.0)
    with pytest.raises(ValueError, match="energy: expected direction of shape"):
        energy.energy_hessian_product(query, key, direction[:, 1:])
    with pytest.raises(ValueError, match="newton_step: expected float32 or float64"):
        energy.newton_step(query.bfloat16(), key.bfloat16())


def test_examples_in_the_documentation() -> None:
    torch.manual_seed(0)
    assert doctest.testmod(energy).failed == 0
