"""The Free Energy Mixer on fused CPU kernels.

>>> import torch
>>> from fem import FreeEnergyMixer, FreeEnergyMixerConfig
>>> mixer = FreeEnergyMixer(FreeEnergyMixerConfig(n_embd=512, n_head=8))
>>> mixer(torch.randn(2, 128, 512)).shape
torch.Size([2, 128, 512])

The reads alone are in `fem.ops`, energies that attention descends on in `fem.energy`, whole language models in
`fem.language_model`, forecasts of tables in `Forecaster`, classes of pictures in `ImageClassifier`, weights of the
authors' file in `fem.reference`, models of Hugging Face in `fem.huggingface`, and the lm-evaluation-harness in
`fem.lm_eval`.
"""

from fem import energy, ops
from fem._library import version
from fem.config import FreeEnergyMixerConfig, LetterChoice
from fem.forecaster import Forecaster
from fem.image_classifier import ImageClassifier
from fem.inspection import Inspection
from fem.language_model import GenerateOptions, LanguageModel, LanguageModelState
from fem.language_model_config import LanguageModelConfig
from fem.mixer import FreeEnergyMixer
from fem.reference import ReferenceReport, load_reference
from fem.state import Cache, MixerState
from fem.tokenizer import ByteTokenizer, SentencePieceTokenizer, load_tokenizer

__version__ = version()
__all__ = [
    "ByteTokenizer",
    "Cache",
    "Forecaster",
    "FreeEnergyMixer",
    "FreeEnergyMixerConfig",
    "GenerateOptions",
    "ImageClassifier",
    "Inspection",
    "LanguageModel",
    "LanguageModelConfig",
    "LanguageModelState",
    "LetterChoice",
    "MixerState",
    "ReferenceReport",
    "SentencePieceTokenizer",
    "energy",
    "load_reference",
    "load_tokenizer",
    "ops",
]
