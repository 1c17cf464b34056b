"""The files of a model folder."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


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


def model_folder(folder: Path) -> Path:
    """The newest checkpoint if folder is a training run (it has checkpoints/), else folder itself."""
    checkpoints = folder / "checkpoints"
    if not checkpoints.is_dir():
        return folder
    steps = sorted(checkpoints.glob("step-*"))
    if not steps:
        raise ValueError(f"model folder: {folder} is a training run without any checkpoint yet")
    return steps[-1]
