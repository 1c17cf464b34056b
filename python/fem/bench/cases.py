"""What is compared: shapes, and pieces of work to be timed in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

PRIORS = ("softmax", "linear", "gla", "rnn_softmax", "rnn_decay", "mamba")
OPPONENTS = ("sdpa", "compile")
COMPILED = "compiled definition"

Work = Callable[[], None]


@dataclass(frozen=True)
class Shape:
    """Sizes of a benchmark, float32."""

    name: str
    width: int
    heads: int
    length: int
    batch: int


SHAPES = (
    Shape("S1", 768, 12, 1024, 2),
    Shape("S2", 512, 4, 2048, 1),
    Shape("S3", 512, 4, 4096, 1),
    Shape("S4", 512, 4, 8192, 1),
    Shape("tiny", 32, 2, 48, 2),  # only shows that the benchmark runs
)


class Side:
    """A computation, and the tensors that its gradients are wanted for."""

    def __init__(self, inputs: Sequence[Tensor], run: Callable[[], Sequence[Tensor]]) -> None:
        self._inputs, self._run = inputs, run
        self._gradients: list[Tensor] | None = None

    def forward(self) -> None:
        """Without gradients."""
        with torch.no_grad():
            self._run()

    def training(self) -> None:
        """Forward and backward: a training step without the optimiser."""
        outputs = self._run()
        if self._gradients is None:
            self._gradients = [torch.randn_like(output) for output in outputs]
        torch.autograd.grad(outputs, self._inputs, self._gradients, allow_unused=True)


class Case(NamedTuple):
    """One row of the table: our work, and that of every opponent by its name."""

    name: str
    ours: Work
    opponents: Mapping[str, Work]


def forward_and_training(name: str, ours: Side, opponents: Mapping[str, Side]) -> list[Case]:
    """The two rows that every prior and shape has."""
    return [
        Case(f"{name} forward", ours.forward, {o: side.forward for o, side in opponents.items()}),
        Case(f"{name} forward+backward", ours.training, {o: side.training for o, side in opponents.items()}),
    ]
