"""Attention as descent on an energy: the function of a query whose negative gradient an attention layer adds.

F is a function of one query q beside keys k_i that are held fixed; T is the temperature.

    elastic   E_i = |q - k_i|^2 / 2       F = -T log sum_i exp(-E_i / T), a Helmholtz free energy
    product   E_i = -q.k_i                the same: what elastic is, up to |q|^2 / 2, where all keys are as long
    linear    E_i = -(q.k_i)^2 / (2 T)    F = sum_i w_i E_i: linear attention; with log_decay gated linear attention

Shapes are [B, T, H, K], as in `fem.ops`; heads add up, the energy of a layer being the sum over H. Plain ATen for
looking at, with Tq x Tk x K numbers at the most, not for speed. All of it can be differentiated. Wrong arguments are
ValueErrors.

Minus the gradient is attention whose values are its keys:

>>> query, key = torch.randn(2, 1, 16, 4, 8).unbind()
>>> attended = ops.softmax_read(query, key, key).mean
>>> torch.allclose(-energy_gradient(query, key, potential="product"), attended, atol=1e-6)
True
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fem import ops  # noqa: F401  registers the operators, and is in the example above

__all__ = ["NewtonStep", "energy", "energy_gradient", "energy_hessian_product", "newton_step"]

Potential = Literal["elastic", "product", "linear"]


class NewtonStep(NamedTuple):
    """What `newton_step` returns."""

    step: Tensor
    """[B, Tq, H, K] minus the (pseudo-)inverse Hessian times the gradient."""
    smallest_curvature: Tensor
    """[B, Tq, H] the smallest eigenvalue of the Hessian; below 0 the step need not lead down."""


def energy(
    query: Tensor,
    key: Tensor,
    *,
    potential: Potential = "elastic",
    temperature: float | None = None,
    causal: bool = True,
    log_decay: Tensor | None = None,
) -> Tensor:
    """F [B, Tq, H].

    Args:
        query, key: [B, Tq, H, K], [B, Tk, H, K]; at least one key.
        potential: elastic, product or linear.
        temperature: T; the root of K unless given, as attention scales its scores.
        causal: the queries are the last tokens, and each sees the keys up to its own.
        log_decay: [B, Tk, H], of the linear potential: w_ti = exp(sum of log_decay from i + 1 to t).

    >>> query, key = torch.randn(2, 1, 16, 4, 8).unbind()
    >>> energy(query, key).shape
    torch.Size([1, 16, 4])
    """
    out: Tensor = torch.ops.fem.energy(query, key, potential, temperature, causal, log_decay)
    return out


def energy_gradient(
    query: Tensor,
    key: Tensor,
    *,
    potential: Potential = "elastic",
    temperature: float | None = None,
    causal: bool = True,
    log_decay: Tensor | None = None,
) -> Tensor:
    """The gradient of `energy` in the query, [B, Tq, H, K]; keys are held fixed.

    >>> query, key = torch.randn(2, 1, 16, 4, 8).unbind()
    >>> step = query - 0.1 * energy_gradient(query, key)
    >>> bool((energy(step, key) < energy(query, key)).all())
    True
    """
    out: Tensor = torch.ops.fem.energy_gradient(query, key, potential, temperature, causal, log_decay)
    return out


def energy_hessian_product(
    query: Tensor,
    key: Tensor,
    direction: Tensor,
    *,
    potential: Potential = "elastic",
    temperature: float | None = None,
    causal: bool = True,
    log_decay: Tensor | None = None,
) -> Tensor:
    """The Hessian of `energy` in the query times a direction [B, Tq, H, K], without making the Hessian."""
    out: Tensor = torch.ops.fem.energy_hessian_product(query, key, direction, potential, temperature, causal, log_decay)
    return out


def newton_step(
    query: Tensor,
    key: Tensor,
    *,
    potential: Potential = "elastic",
    temperature: float | None = None,
    causal: bool = True,
    log_decay: Tensor | None = None,
) -> NewtonStep:
    """The exact Newton step of `energy`, which makes and solves Hessians of K x K; float32 or float64.

    At low temperatures the Hessian is indefinite and the step leads anywhere:

    >>> query, key = torch.randn(2, 1, 16, 4, 8).unbind()
    >>> bool((newton_step(query, key, temperature=0.1).smallest_curvature < 0).any())
    True
    """
    return NewtonStep(*torch.ops.fem.newton_step(query, key, potential, temperature, causal, log_decay))
