"""What reads return."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

__all__ = ["FreeEnergyRead", "RecurrentRead", "SoftmaxRead"]


class SoftmaxRead(NamedTuple):
    """What `softmax_read` returns."""

    mean: Tensor
    """[B, Tq, H, V]"""
    free_energy: Tensor | None
    """[B, Tq, H, V]; None without beta."""
    log_normalizer: Tensor
    """[B, Tq, H] log sum_i exp(score_ti), -inf where nothing is visible; float32 (float64), not differentiable."""


class FreeEnergyRead(NamedTuple):
    """What `free_energy_read` returns."""

    free_energy: Tensor
    """[B, Tq, H, V]"""
    posterior: Tensor
    """[B, Tq, H, V] the mean under the tilted prior q_tj(i) ~ p_t(i) exp(beta_j v_ij); F <= posterior <= max_i v_ij."""


class RecurrentRead(NamedTuple):
    """What the linear-time reads return. All of it is differentiable."""

    mean: Tensor
    """[B, T, H, V]"""
    free_energy: Tensor | None
    """[B, T, H, V]; None without beta."""
    log_normalizer: Tensor
    """Log of the sum of the unnormalised p_t(i), a head or a channel; -inf: nothing visible. float32 (float64)."""
    state: Tensor | None
    """After the last token of each sequence, the `initial` of a continuation; float32 (float64). None if not causal."""
