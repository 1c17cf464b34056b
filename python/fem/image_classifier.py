"""Classes of pictures: `ImageClassifier.from_pretrained(folder)` takes what `fem classify train` has made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fem._task_model import TaskModel

__all__ = ["ImageClassifier"]


class ImageClassifier(TaskModel):
    """Standardised pictures [B, channels, height, width] -> logits [B, classes].

    One call of the C++ core on parameters held here: the same weights give bitwise the same numbers there and here.
    `predict` takes pictures as people have them, `standardised` makes them what the model learns from.

    Args:
        options: the fields of config.json: height, width, channels, patch, classes, mean, deviation, and those of a
            backbone.
    """

    _name = "image_classifier"

    @property
    def classes(self) -> list[str]:
        """Their names, in the order of the logits."""
        return list(self.options["classes"])

    def forward(self, pictures: Tensor) -> Tensor:
        """The logits of standardised pictures, with gradients."""
        logits: Tensor = torch.ops.fem.classify(pictures, self._weights(), self._config, self.training)
        return logits

    def standardised(self, pictures: Any) -> Tensor:
        """Pictures as `forward` takes them, [B, channels, height, width].

        Args:
            pictures: as of `predict`.
        """
        dtype = self._weights()[0].dtype
        batches = _batches(pictures)[0]
        return torch.cat([torch.ops.fem.standardised_pixels(batch, self._config, dtype) for batch in batches])

    def predict(self, pictures: Any) -> Tensor:
        """The probabilities of the classes, whatever is asked beside them.

        Args:
            pictures: one picture, grey or RGB: an array [height, width] or [height, width, channels], as PIL and
                OpenCV have them, or a tensor [height, width] or [channels, height, width]; uint8, or floats from 0 to
                1. Or a list of such, or an array or tensor with one more dimension in front. A picture of another size
                is scaled until it covers the model's, and cut in the middle; grey and colour are converted.

        Returns:
            float64 [classes] of one picture, else [B, classes].
        """
        batches, single = _batches(pictures)
        weights = self._weights()
        found = torch.cat([torch.ops.fem.classify_pixels(batch, weights, self._config) for batch in batches])
        return found[0] if single else found


def _batches(pictures: Any) -> tuple[list[Tensor], bool]:
    """Tensors [B, channels, height, width], each of pictures of one size, and whether it was one picture."""
    if isinstance(pictures, (list, tuple)):
        if not pictures:
            raise ValueError("ImageClassifier: expected at least one picture, got an empty list")
        return [batch for picture in pictures for batch in _batches(picture)[0]], False
    mode = getattr(pictures, "mode", None)  # of PIL, whose palettes are numbers that look like grey
    if isinstance(mode, str) and mode not in ("L", "RGB"):
        raise ValueError(f"ImageClassifier: expected a picture in mode L or RGB, got {mode}; picture.convert('RGB')")
    pixels, channels_last = (pictures, False) if isinstance(pictures, Tensor) else (_tensor(pictures), True)
    if not 2 <= pixels.dim() <= 4:
        raise ValueError(
            "ImageClassifier: expected a picture [height, width] or with channels, or several of one size, got shape "
            f"{list(pixels.shape)}"
        )
    single = pixels.dim() < 4
    if pixels.dim() == 2:
        pixels = pixels[None]
    elif channels_last:
        pixels = pixels.movedim(-1, -3)
    return [pixels[None] if single else pixels], single


def _tensor(picture: Any) -> Tensor:
    import numpy

    try:
        return torch.tensor(numpy.asarray(picture))
    except (TypeError, ValueError):
        raise ValueError(
            f"ImageClassifier: expected a picture as an array or tensor, got {type(picture).__name__}; a file is read "
            "with PIL.Image.open(path).convert('RGB')"
        ) from None
