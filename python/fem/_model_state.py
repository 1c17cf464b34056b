"""What a language model remembers between calls."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from fem.state import MixerState


class AttentionState:
    """Keys and values of the tokens seen, as `MixerState` is to a mixer. Its tensors are replaced, never changed."""

    def __init__(self) -> None:
        self.layer = ""  # which one it belongs to, in words; empty: new
        self.key: Tensor | None = None  # [B, T, H, K], rotated
        self.value: Tensor | None = None
        self.real: Tensor | None = None  # [B, T] bool, false = padding

    @property
    def tokens(self) -> int:
        return 0 if self.key is None else self.key.shape[1]

    def append(self, layer: str, key: Tensor, value: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.key is not None and self.value is not None and self.real is not None:
            key, value = torch.cat([self.key, key], 1), torch.cat([self.value, value], 1)
            real = torch.cat([self.real, real], 1)
        self.layer, self.key, self.value, self.real = layer, key, value, real
        return key, value, real

    def check(self, layer: str, new: Tensor) -> None:
        """Whether it can go on with such keys."""
        seen = self.key
        if seen is None:
            return
        if self.layer != layer:
            raise ValueError(
                f"Attention: expected a state of the layer ({layer}), got one of the layer ({self.layer}); a state "
                "belongs to the layer that began it, start from a new one"
            )
        if seen.shape[0] != new.shape[0]:
            raise ValueError(
                f"Attention: expected x with the state's batch size {seen.shape[0]}, got {new.shape[0]}; start from a "
                "new state or use state.select"
            )
        if (seen.shape[2:], seen.dtype, seen.device) != (new.shape[2:], new.dtype, new.device):
            raise ValueError(
                f"Attention: expected the state's keys as {new.dtype} [B, T, {new.shape[2]}, {new.shape[3]}] on "
                f"{new.device}, got {seen.dtype} {list(seen.shape)} on {seen.device}; a state belongs to the layer "
                "that began it, start from a new one"
            )

    def snapshot(self) -> AttentionState:
        return copy.copy(self)

    def select(self, batch_index: Tensor) -> AttentionState:
        selected = self.snapshot()
        if self.key is not None and self.value is not None and self.real is not None:
            selected.key, selected.value = self.key[batch_index], self.value[batch_index]
            selected.real = self.real[batch_index]
        return selected


LayerState: TypeAlias = MixerState | AttentionState


class LanguageModelState:
    """What a model remembers of the tokens it has seen: one state a layer. Start from an empty one."""

    def __init__(self, layers: Sequence[LayerState] = ()) -> None:
        self.layers = list(layers)

    @property
    def tokens(self) -> int:
        """Rows seen, padding included."""
        return self.layers[0].tokens if self.layers else 0

    def snapshot(self) -> LanguageModelState:
        """A cheap copy, untouched by what is done to this state afterwards."""
        return LanguageModelState([layer.snapshot() for layer in self.layers])

    def select(self, batch_index: Tensor) -> LanguageModelState:
        """The state of the given rows of the batch, [rows] int: to reorder, repeat or drop them."""
        return LanguageModelState([layer.select(batch_index) for layer in self.layers])
