"""The Free Energy Mixer on fused CPU kernels.

>>> import torch
>>> from fem import FreeEnergyMixer, FreeEnergyMixerConfig
>>> mixer = FreeEnergyMixer(FreeEnergyMixerConfig(n_embd=512, n_head=8))
>>> mixer(torch.randn(2, 128, 512)).shape
torch.Size([2, 128, 512])

The reads alone are in `fem.ops`, weights of the authors' file in `fem.reference`, models of Hugging Face in
`fem.huggingface`.
"""

from importlib.metadata import version

from fem import ops
from fem.config import FreeEnergyMixerConfig
from fem.mixer import FreeEnergyMixer
from fem.reference import ReferenceReport, load_reference
from fem.state import Cache, MixerState

__version__ = version("fem")
__all__ = [
    "Cache",
    "FreeEnergyMixer",
    "FreeEnergyMixerConfig",
    "MixerState",
    "ReferenceReport",
    "load_reference",
    "ops",
]
