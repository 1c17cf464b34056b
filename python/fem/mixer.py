"""The layer: parameters in Python, everything else in one call of the C++ core."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fem._parameters import add_parameters, parameters_of
from fem.config import FreeEnergyMixerConfig
from fem.inspection import Inspection
from fem.state import Cache, MixerState


class FreeEnergyMixer(nn.Module):
    """The Free Energy Mixer: x [B, T, D] -> y [B, T, D].

    Parameters are ordinary `nn.Parameter`s with the authors' names. `torch.manual_seed` gives the same initial weights
    here and in C++, and the same weights give bitwise the same numbers.

    Args:
        config: the options; kept as a copy.
        layer_idx: which state of a cache (`past_key_values`) belongs to this layer.
        device, dtype: of the parameters.
    """

    def __init__(
        self,
        config: FreeEnergyMixerConfig,
        layer_idx: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """A mixer with fresh parameters."""
        super().__init__()
        self.config = replace(config)
        self.layer_idx = layer_idx
        self._json = config.to_json()
        names, shapes = torch.ops.fem.mixer_parameters(self._json)
        self._names = tuple(names)
        add_parameters(self, self._names, shapes, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fresh initial values from torch's default generator."""
        torch.ops.fem.initialize_mixer(self._weights(), self._json)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool = False,
        output_attentions: bool = False,
        *,
        cu_seqlens: Tensor | None = None,
        state: MixerState | None = None,
    ) -> Any:
        """Mixes the tokens of each row.

        Args:
            hidden_states: x, [B, T, D].
            attention_mask: [B, T] bool or integer, 1 = a real token; padding may stand left or right and changes no
                real token. With a cache the mask may cover the past as well; its last T columns count.
            past_key_values: a `fem.Cache`, or a cache of flash-linear-attention; continues where it stands.
            use_cache: begin a `fem.Cache` if none is given.
            output_attentions: not available; here for callers that always name it.
            cu_seqlens: [n + 1] int, borders 0 ... T of sequences packed in one row (B = 1).
            state: continue this state and move it on: the same for a single layer.

        Returns:
            y [B, T, D]; with `past_key_values` or `use_cache` the triple (y, None, cache).
        """
        if output_attentions:
            raise ValueError("FreeEnergyMixer: output_attentions is not available: every channel selects for itself")
        if past_key_values is None and not use_cache:
            return self._mix(hidden_states, attention_mask, cu_seqlens, state)
        if state is not None:
            raise ValueError("FreeEnergyMixer: expected state or past_key_values (use_cache), got both")
        if self.layer_idx is None:
            raise ValueError("FreeEnergyMixer: a cache keeps states by layer: build the layer with layer_idx=0, 1, ...")
        cache = Cache() if past_key_values is None else past_key_values
        state = _state_in(cache, self.layer_idx)
        tokens = hidden_states.shape[1]
        if attention_mask is not None and attention_mask.dim() == 2:
            attention_mask = attention_mask[:, -tokens:]
        y = self._mix(hidden_states, attention_mask, cu_seqlens, state)
        if not isinstance(cache, Cache):
            cache.update(recurrent_state=state, layer_idx=self.layer_idx, offset=tokens)
        return y, None, cache

    def inspect(
        self,
        hidden_states: Tensor,
        positions: Sequence[int],
        attention_mask: Tensor | None = None,
        *,
        cu_seqlens: Tensor | None = None,
    ) -> Inspection:
        """Which token every channel chose, at which hidden temperature, for how many nats.

        Args:
            hidden_states: x, [B, T, D], as for a call of the layer.
            positions: the N tokens to look at, from 0 to T - 1. A few times B N H V T numbers are made and nothing of
                size T x T: of long sequences ask for some tokens at a time.
            attention_mask, cu_seqlens: as for a call of the layer.
        """
        mask = _keep(attention_mask) if attention_mask is not None else None
        found = torch.ops.fem.inspect_mixer(
            hidden_states, self._weights(), self._json, list(positions), mask, cu_seqlens
        )
        found["lambda_"] = found.pop("lambda")
        return Inspection(**found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes parameters and configuration to one .safetensors file, atomically; C++ reads it with `load_mixer`."""
        torch.ops.fem.save_mixer(os.fspath(path), self._weights(), self._json)

    @classmethod
    def load(cls, path: str | os.PathLike[str], layer_idx: int | None = None) -> FreeEnergyMixer:
        """The mixer that `save`, or `save_mixer` in C++, wrote."""
        parameters, config = torch.ops.fem.load_mixer(os.fspath(path))
        with torch.device("meta"):
            mixer = cls(FreeEnergyMixerConfig.from_json(config), layer_idx)
        mixer.load_state_dict(dict(zip(mixer._names, parameters, strict=True)), strict=True, assign=True)
        return mixer

    def extra_repr(self) -> str:
        """The options that differ from their defaults."""
        changed = {k: v for k, v in vars(self.config).items() if v != getattr(FreeEnergyMixerConfig, k, None)}
        return ", ".join(f"{name}={value!r}" for name, value in changed.items())

    def _mix(self, x: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None, state: MixerState | None) -> Tensor:
        if mask is not None:
            mask = _keep(mask)
        y: Tensor
        if state is None:
            y = torch.ops.fem.mix(x, self._weights(), self._json, mask, cu_seqlens, self.training)
        elif cu_seqlens is None:
            y = torch.ops.fem.mix_with_state(x, self._weights(), self._json, state._handle, mask, self.training)
        else:
            raise ValueError("FreeEnergyMixer: a state cannot continue packed sequences: expected cu_seqlens=None")
        return y

    def _weights(self) -> list[Tensor]:
        return parameters_of(self, self._names)


def _keep(mask: Tensor) -> Tensor:
    if mask.is_floating_point():
        raise ValueError(
            f"FreeEnergyMixer: expected attention_mask as bool or integer [B, T], 1 = a real token, got {mask.dtype} "
            f"{list(mask.shape)}; of an additive mask pass (mask == 0)"
        )
    return mask if mask.dtype == torch.bool else mask != 0


def _state_in(cache: Any, layer_idx: int) -> MixerState:
    if isinstance(cache, Cache):
        return cache[layer_idx]
    if not _keeps_recurrent_states(cache):
        raise ValueError(
            "FreeEnergyMixer: expected past_key_values as fem.Cache (or a cache of flash-linear-attention, with "
            f"update(recurrent_state=...)), got {type(cache).__name__}; begin with fem.Cache() or use_cache=True"
        )
    entry: Mapping[str, Any] | None = cache[layer_idx] if len(cache) > layer_idx else None
    state = entry.get("recurrent_state") if entry is not None else None
    if state is not None and not isinstance(state, MixerState):
        raise ValueError(
            f"FreeEnergyMixer: expected a fem.MixerState in place {layer_idx} of past_key_values, got a "
            f"{type(state).__name__}: that place belongs to another kind of layer; is layer_idx right?"
        )
    return state if state is not None else MixerState()


def _keeps_recurrent_states(cache: Any) -> bool:
    # Caches of keys and values have an `update` as well, with other arguments.
    try:
        return "recurrent_state" in inspect.signature(cache.update).parameters
    except (AttributeError, TypeError, ValueError):
        return False
