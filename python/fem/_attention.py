"""Plain causal attention, to compare a mixer with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fem import ops
from fem._model_state import AttentionState
from fem.config import FreeEnergyMixerConfig


class Attention(nn.Module):
    """Four projections, rotary positions, softmax attention; called as a `FreeEnergyMixer` is.

    Of the mixer options it takes n_embd, n_head, bias, use_rope and rope_theta.
    """

    def __init__(self, config: FreeEnergyMixerConfig) -> None:
        super().__init__()
        self.heads = config.n_head
        self.theta = config.rope_theta if config.use_rope is not False else None
        width, bias = config.n_embd, config.bias
        self.query = nn.Linear(width, width, bias)
        self.key = nn.Linear(width, width, bias)
        self.value = nn.Linear(width, width, bias)
        self.output = nn.Linear(width, width, bias)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        cu_seqlens: Tensor | None = None,
        state: AttentionState | None = None,
    ) -> Tensor:
        query, key, value = (
            torch.unflatten(linear(x), -1, (self.heads, -1)) for linear in (self.query, self.key, self.value)
        )
        if state is not None:
            state.check(self._words(), key)
        if self.theta is not None:
            positions = _positions(x, mask, cu_seqlens, state)
            query, key = _rotated(query, positions, self.theta), _rotated(key, positions, self.theta)
        if state is not None:
            real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
            key, value, mask = state.append(self._words(), key, value, real)
        read = ops.softmax_read(query, key, value, key_mask=mask, cu_seqlens=cu_seqlens).mean
        y: Tensor = self.output(read.flatten(2))
        return y

    def _words(self) -> str:
        return "attention, no rope" if self.theta is None else f"attention, rope {self.theta:g}"


def _positions(x: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None, state: AttentionState | None) -> Tensor:
    """[T] or [B, T]: they restart with every packed sequence, and padding is none."""
    place = torch.arange(x.shape[1], device=x.device)
    if cu_seqlens is not None:
        # The last border at or before each place; empty sequences share theirs with the next.
        return place - cu_seqlens[torch.searchsorted(cu_seqlens.long(), place, right=True) - 1]
    if mask is not None:
        place = (mask.cumsum(1) - 1).clamp_min(0)
    if state is not None and state.real is not None:
        place = place + state.real.sum(1, keepdim=True)
    return place


def _rotated(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """x [B, T, H, K]: the pairs (2m, 2m + 1) turn by position * theta^(-2m/K)."""
    half = x.shape[-1] // 2
    frequency = theta ** -(torch.arange(half, device=x.device, dtype=torch.float64) / half)
    y: Tensor = torch.ops.fem.modulate(x, positions=positions, frequency=frequency)
    return y
