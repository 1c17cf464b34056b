"""The files of a model folder."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import torch

from fem import _library  # noqa: F401


def write_atomically(path: Path, content: bytes) -> None:
    """Whatever happens, path holds the old file or the whole new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise ValueError(f"model folder: {path} cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


def model_folder(folder: str | os.PathLike[str]) -> Path:
    """The newest checkpoint if folder is a training run (it has checkpoints/step-N), else folder itself."""
    return Path(torch.ops.fem.model_folder(os.fspath(folder)))


def best_model_folder(folder: str | os.PathLike[str]) -> Path:
    """The same, but the best checkpoint of a run that keeps one."""
    return Path(torch.ops.fem.best_model_folder(os.fspath(folder)))


def check_free_for_model(folder: Path) -> None:
    """Raises if a model must not be saved there: the folder is a training run's or a checkpoint's."""
    torch.ops.fem.check_free_for_model(os.fspath(folder))
