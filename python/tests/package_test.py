"""The distribution: its name on PyPI is free, its extras are found as pip spells them, the import stays `fem`."""

import re
import subprocess
import sys
from importlib.metadata import distribution, packages_distributions

import fem
import pytest

DISTRIBUTION = "free-energy-mixer"


def normalized(name: str) -> str:
    """As pip compares names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_import_is_fem() -> None:
    assert DISTRIBUTION in packages_distributions()["fem"]
    assert distribution(DISTRIBUTION).version == fem.__version__


def test_extras_are_spelled_as_pip_asks_for_them() -> None:
    extras = distribution(DISTRIBUTION).metadata.get_all("Provides-Extra")
    assert extras is not None and set(extras) == {"lm-eval", "transformers", "test"}
    assert [normalized(extra) for extra in extras] == extras


@pytest.mark.parametrize("extra", ["lm-eval", "transformers"])
def test_pip_finds_an_extra(extra: str) -> None:
    # What is installed satisfies it, so that nothing is fetched.
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--disable-pip-version-check"]
    done = subprocess.run([*pip, f"{DISTRIBUTION}[{extra}]"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "does not provide the extra" not in done.stdout + done.stderr, done.stderr
    assert f'extra == "{normalized(extra)}"' in "\n".join(distribution(DISTRIBUTION).requires or ())
