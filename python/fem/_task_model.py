"""What models of a task have in common: parameters held here for the library, and a folder that the command reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from fem._files import best_model_folder, check_free_for_model, write_atomically
from fem._parameters import add_parameters, parameters_of

if TYPE_CHECKING:
    from typing_extensions import Self


class TaskModel(nn.Module):
    """Its operators are called NAME_options, NAME_parameters, initialize_NAME, NAME_file and load_NAME."""

    _name: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        """A model with fresh parameters."""
        super().__init__()
        self.options: dict[str, Any] = json.loads(self._operator("{}_options")(json.dumps(options)))
        self._config = json.dumps(self.options)
        names, shapes = self._operator("{}_parameters")(self._config)
        self._names = tuple(names)
        add_parameters(self, self._names, shapes, norm_eps=self.options["norm_eps"])
        self._operator("initialize_{}")(self._weights(), self._config)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes config.json and model.safetensors, each whole or not at all; C++ reads them.

        The folder of a training run or a checkpoint is refused.
        """
        path = Path(folder)
        check_free_for_model(path)
        path.mkdir(parents=True, exist_ok=True)
        weights = {name: value.contiguous().cpu() for name, value in self.state_dict().items()}
        torch.ops.fem.save_safetensors(os.fspath(path / "model.safetensors"), weights, {"format": "pt"})
        write_atomically(path / "config.json", self._operator("{}_file")(self._config).encode())

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> Self:
        """The model of a folder, or the best (else the newest) checkpoint of a training run, in eval mode."""
        path = best_model_folder(folder)
        weights, config = cls._operator("load_{}")(os.fspath(path))
        model = cls(**json.loads(config))
        model.load_state_dict(dict(weights), assign=True)
        return model.eval()

    @classmethod
    def _operator(cls, name: str) -> Any:
        return getattr(torch.ops.fem, name.format(cls._name))

    def _weights(self) -> list[Tensor]:
        return parameters_of(self, self._names)
