"""What a causal mixer remembers between calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fem import _library  # noqa: F401


class MixerState:
    """The memory of one mixer for one batch: caches of keys and values, or the sums of a linear-time prior.

    Start from an empty one and pass it to every call: `y = mixer(x, state=state)` continues where the state stands and
    moves it on. It belongs to the first mixer that is given it: one of another prior, dialect, rope, conditioner, size
    or dtype refuses it. A state can be pickled and deep-copied.
    """

    def __init__(self) -> None:
        self._handle: Any = torch.classes.fem.MixerState()

    @classmethod
    def _of(cls, handle: Any) -> MixerState:
        state = cls.__new__(cls)
        state._handle = handle
        return state

    @property
    def tokens(self) -> int:
        """Rows seen, padding included."""
        return int(self._handle.tokens())

    def snapshot(self) -> MixerState:
        """A cheap copy that shares memory and is untouched by what is done to this state afterwards."""
        return self._of(self._handle.snapshot())

    def rollback(self, snapshot: MixerState) -> None:
        """Back to an earlier snapshot of this state; caches are not copied."""
        self._handle.rollback(snapshot._handle)

    def clone(self) -> MixerState:
        """A copy that shares no memory."""
        return self._of(self._handle.clone())

    def select(self, batch_index: Tensor) -> MixerState:
        """The state of the given rows of the batch, [rows] int: to reorder, repeat or drop them (beam search)."""
        return self._of(self._handle.select(batch_index))

    def to_tensors(self) -> dict[str, Tensor]:
        """Everything as named tensors, to store it in a file; the inverse of `from_tensors`."""
        return dict(self._handle.to_tensors())

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> MixerState:
        """The state that `to_tensors` wrote."""
        return cls._of(torch.classes.fem.MixerState.from_tensors(tensors))

    def __getstate__(self) -> dict[str, Tensor]:
        return self.to_tensors()

    def __setstate__(self, tensors: dict[str, Tensor]) -> None:
        self._handle = torch.classes.fem.MixerState.from_tensors(tensors)

    def __repr__(self) -> str:
        return f"MixerState(tokens={self.tokens})"


class Cache:
    """The states of all mixers of a model, by `layer_idx`: what `past_key_values` is to attention."""

    def __init__(self) -> None:
        self._states: dict[int, MixerState] = {}

    def __getitem__(self, layer_idx: int) -> MixerState:
        return self._states.setdefault(layer_idx, MixerState())

    def __setitem__(self, layer_idx: int, state: MixerState) -> None:
        self._states[layer_idx] = state

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[MixerState]:
        return iter(self._states.values())

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens seen by a layer."""
        return self._states[layer_idx].tokens if layer_idx in self._states else 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keeps the rows `beam_idx` of the batch, in that order."""
        for layer_idx, state in self._states.items():
            self._states[layer_idx] = state.select(beam_idx)

    def __repr__(self) -> str:
        return f"Cache(layers={len(self)}, tokens={self.get_seq_length()})"
