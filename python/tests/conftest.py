"""What holds for every test: the installed package is tested, and a test alone sees the numbers of the whole suite."""

import os
import sysconfig
from pathlib import Path

import fem
import pytest
import torch
from support import DIALECTS, PRIORS

# Compiled graphs that inductor remembers from another build call operators as their schemas were then.
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"


def pytest_sessionstart() -> None:
    # Not resolved: a symlink in site-packages is an installation too.
    folder = Path(fem.__file__).parent.parent
    installed = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    assert folder in installed, f"fem comes from {folder}, expected site-packages: pip install . and test that"


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=PRIORS)
def prior(request: pytest.FixtureRequest) -> str:
    """Every prior in turn."""
    return str(request.param)


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    """Every dialect in turn."""
    return str(request.param)
