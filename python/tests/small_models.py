"""Small language models."""

from typing import Any

import torch
from fem import ByteTokenizer, LanguageModel, LanguageModelConfig
from support import HEADS, PRIORS, WIDTH

COMPARED = ("delta_net", "gated_delta_net", "mamba2", "diff_attention", "hyena")
BY_HAND = (*PRIORS, "attention")  # of which the tests here have the formulas; C++ tests have those of the others
KINDS = (*BY_HAND, *COMPARED)


def model_config(kind: str = "softmax", **fields: Any) -> LanguageModelConfig:
    sizes = {"vocab_size": 257, "n_embd": WIDTH, "n_head": HEADS, "n_layer": 2, "mlp_width": 48}
    if kind not in PRIORS:
        return LanguageModelConfig(**{**sizes, "block_mixer": kind, **fields})
    mixer = {"prior_type": kind, "conv_hidden": 8, "ssm_rank": 4}
    return LanguageModelConfig(**{**sizes, "mixer": mixer, **fields})


def random_model(kind: str = "softmax", **fields: Any) -> LanguageModel:
    """Every parameter random: fresh ones give nearly the same logits everywhere."""
    config = model_config(kind, **fields)
    model = LanguageModel(config, ByteTokenizer() if config.vocab_size == 257 else None)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.1, 0.3)
    return model.eval()
