"""A mixer's state as a layer of transformers' caches."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from fem.mixer import FreeEnergyMixer
from fem.state import MixerState

Tokens = tuple[Tensor, Tensor | None]  # inputs [B, T, D], and which of them are real [B, T]


class FemCacheLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """The `fem.MixerState` of one layer. `generate` reorders, repeats, crops and measures it as it does attention's."""

    supports_early_init = False
    is_croppable = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.batch_size = -1
        self._state = MixerState()
        self._ahead: Tokens | None = None  # seen, but not in the state yet
        self._before = MixerState()  # where the last call began, and its tokens: what crop can go back to
        self._last: Tokens | None = None

    def advance(self, mixer: FreeEnergyMixer, x: Tensor, mask: Tensor | None) -> Tensor:
        """The mixer's output for new tokens, which count as seen from then on."""
        self.batch_size = x.shape[0]
        y: Tensor
        if torch.is_grad_enabled() and any(p.requires_grad for p in (x, *mixer.parameters())):
            if self.get_seq_length() > 0:
                raise ValueError(
                    "FemCacheLayer: a cache carries no gradients: continue it under torch.no_grad(), or train with "
                    "use_cache=False"
                )
            # Models begin a cache in training, too. Should it be continued after all, the state catches up then.
            self._ahead = self._last = (x.detach(), mask)
            y = mixer(x, mask)
            return y
        if self._ahead is not None:
            mixer(*self._ahead, state=self._state)
        self._ahead, self._before, self._last = None, self._state.snapshot(), (x, mask)
        y = mixer(x, mask, state=self._state)
        return y

    def get_seq_length(self) -> int:
        """Tokens seen, padding included."""
        return self._state.tokens + (0 if self._ahead is None else self._ahead[0].shape[1])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of what new tokens see."""
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        """-1: there is none."""
        return -1

    def crop(self, tokens_to_remove: int) -> None:
        """Forgets the last tokens, their number given as a negative one: at most those of the last call."""
        if tokens_to_remove == 0:
            return
        kept = self.get_seq_length() + tokens_to_remove - self._before.tokens
        if tokens_to_remove > 0 or self._last is None or kept < 0:
            most = 0 if self._last is None else self._last[0].shape[1]
            raise ValueError(
                f"FemCacheLayer: expected crop(-n) with n up to {most}, the tokens of the last call, got "
                f"crop({tokens_to_remove}); to go back further, deepcopy the cache at that point"
            )
        x, mask = self._last
        self._state.rollback(self._before)
        self._ahead = self._last = (x[:, :kept], None if mask is None else mask[:, :kept]) if kept > 0 else None

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keeps these rows of the batch, in this order."""
        rows = torch.arange(max(self.batch_size, 0), device=indices.device)[indices]
        self.batch_size = len(rows)
        self._state = self._state.select(rows)
        if self._ahead is not None:
            x, mask = self._ahead
            self._ahead = x[rows], None if mask is None else mask[rows]
        self._last = None

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """The same, for beam search."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeats every row."""
        self.batch_select_indices(torch.arange(self.batch_size).repeat_interleave(repeats))

    def reset(self) -> None:
        """Forgets everything."""
        self.__init__()  # type: ignore[misc]

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """Not for attention: `advance` is what fills this layer."""
        raise ValueError("FemCacheLayer: holds the state of a mixer, expected no keys and values")

    update = lazy_initialization  # type: ignore[assignment]


def layer_in(cache: Cache, layer_idx: int) -> FemCacheLayer:
    """The layer of a cache. Caches begin with layers for attention's keys and values: an empty one makes room."""
    layers = cast(list[Any], cache.layers)
    while len(layers) <= layer_idx:
        layers.append(FemCacheLayer())
    layer = layers[layer_idx]
    if type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) and layer.get_seq_length() == 0:
        layers[layer_idx] = layer = FemCacheLayer()
    if not isinstance(layer, FemCacheLayer):
        raise ValueError(
            "FemAttention: expected past_key_values as a DynamicCache, empty or begun by this model, got a "
            f"{type(cache).__name__} with a {type(layer).__name__} in place {layer_idx}"
        )
    return layer
