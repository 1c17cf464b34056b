"""What a language model remembers between calls."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fem.state import MixerState


class LanguageModelState:
    """What a model remembers of the tokens it has seen: one state a layer. Start from an empty one."""

    def __init__(self, layers: Sequence[MixerState] = ()) -> None:
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
