"""Loads libfem.so, which registers torch.ops.fem and torch.classes.fem."""

from importlib import metadata
from pathlib import Path

import torch

BUILT_FOR = "2.13"


def version() -> str:
    """Of the distribution, whose name on PyPI is another."""
    return metadata.version("free-energy-mixer")


def load() -> None:
    if not torch.__version__.startswith(BUILT_FOR + "."):
        raise ImportError(
            f"fem {version()} was built for torch {BUILT_FOR}, this is torch {torch.__version__}; "
            f'pip install "torch=={BUILT_FOR}.*", or build fem against your torch with pip install . in its tree'
        )
    torch.ops.load_library(Path(__file__).parent / "lib" / "libfem.so")  # type: ignore[no-untyped-call]


load()
