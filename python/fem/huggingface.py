"""The mixer in models of Hugging Face transformers: `replace_attention(model)`, then train and `generate` as before.

Needs the extra: `pip install "free-energy-mixer[transformers]"`. `save_pretrained` writes the mixers' weights with the
model's and their options with its configuration. To load such a model, build it first:

    config = LlamaConfig.from_pretrained(folder)
    model = replace_attention(LlamaForCausalLM(config), **config.free_energy_mixer)
    model.load_state_dict(safetensors.torch.load_file(f"{folder}/model.safetensors"))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fem.config import FreeEnergyMixerConfig
from fem.mixer import FreeEnergyMixer

try:
    from transformers import AttentionInterface, AttentionMaskInterface, Cache, PreTrainedModel
except ImportError as error:
    raise ImportError('fem.huggingface needs transformers: pip install "free-energy-mixer[transformers]"') from error

from fem._huggingface_cache import FemCacheLayer, layer_in

__all__ = ["FemAttention", "FemCacheLayer", "replace_attention"]

Model = TypeVar("Model", bound=PreTrainedModel)


class FemAttention(nn.Module):
    """A mixer that is called as `LlamaAttention` is.

    Args:
        mixer: the mixer; it has positions of its own, so those of the model go unused.
        layer_idx: the layer's place in the cache.
    """

    def __init__(self, mixer: FreeEnergyMixer, layer_idx: int) -> None:
        super().__init__()
        self.mixer = mixer
        self.layer_idx = layer_idx

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        *,
        cu_seq_lens_q: Tensor | None = None,
        output_attentions: bool | None = False,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Mixes the tokens of each row.

        Args:
            hidden_states: x, [B, T, D].
            position_embeddings: unused.
            attention_mask: padding [B, T] bool, True = a real token, or borders [n + 1] as `cu_seq_lens_q`.
            past_key_values: a `DynamicCache`.
            cu_seq_lens_q: borders 0 ... T of sequences packed in one row.
            output_attentions: not available.

        Returns:
            y [B, T, D], and None for the attention weights.
        """
        if output_attentions:
            raise ValueError("FemAttention: output_attentions is not available: every channel selects for itself")
        mask, borders = attention_mask, cu_seq_lens_q
        if mask is not None and mask.dim() == 1:
            mask, borders = None, mask
        elif mask is not None and mask.dim() != 2:
            raise ValueError(f"FemAttention: expected attention_mask as [B, T], 1 = a real token, got {[*mask.shape]}")
        if past_key_values is None:
            return self.mixer(hidden_states, mask, cu_seqlens=borders), None
        if borders is not None:
            raise ValueError("FemAttention: a cache cannot continue packed sequences: call with use_cache=False")
        return layer_in(past_key_values, self.layer_idx).advance(self.mixer, hidden_states, mask), None


def replace_attention(model: Model, **options: Any) -> Model:
    """Puts a fresh mixer in the place of every self-attention of a decoder built like Llama's.

    Args:
        model: changed in place.
        options: fields of `FreeEnergyMixerConfig`; n_embd and n_head are the model's unless given.

    Returns:
        The model.
    """
    decoder = model.get_decoder()  # type: ignore[no-untyped-call]
    layers = () if model.config.is_encoder_decoder else getattr(decoder, "layers", ())
    if not layers or not all(isinstance(getattr(layer, "self_attn", None), nn.Module) for layer in layers):
        raise ValueError(
            "replace_attention: expected a decoder-only model whose layers[i].self_attn is the attention, as in "
            f"LlamaForCausalLM, got {type(model).__name__}"
        )
    sizes = {"n_embd": decoder.config.hidden_size, "n_head": decoder.config.num_attention_heads}
    config = FreeEnergyMixerConfig(**{**sizes, **options})
    for layer_idx, layer in enumerate(layers):
        weight = next(layer.self_attn.parameters())
        mixer = FreeEnergyMixer(config, device=weight.device, dtype=weight.dtype)
        layer.self_attn = FemAttention(mixer, layer_idx).train(layer.training)
    model.config.free_energy_mixer = options
    decoder.set_attn_implementation("fem")
    return model


def _padding_or_borders(
    batch_size: int,
    q_length: int,
    mask_function: Callable[..., Tensor],
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    **kwargs: Any,
) -> Tensor | None:
    """Makes the attention_mask of `FemAttention`, once for all layers."""
    if attention_mask is not None:
        new = attention_mask[:, -q_length:]
        return new if torch.compiler.is_compiling() or not new.all() else None
    if allow_is_causal_skip or torch.compiler.is_compiling():
        return None
    # transformers found sequences packed in a row: one begins where a token does not see the token before it.
    row, token = torch.arange(batch_size, device=kwargs["device"]), torch.arange(1, q_length, device=kwargs["device"])
    begins = ~mask_function(row[:, None], 0, token, token - 1)
    if batch_size != 1:
        raise ValueError(f"FemAttention: expected packed sequences in a single row, got B = {batch_size}")
    return torch.cat([token.new_tensor([0]), token[begins[0]], token.new_tensor([q_length])])


def _refuse(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    raise ValueError('attn_implementation="fem": expected a model that fem.huggingface.replace_attention has changed')


AttentionInterface.register("fem", _refuse)
AttentionMaskInterface.register("fem", _padding_or_borders)
