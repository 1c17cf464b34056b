#!python
"""The command `fem` of the Python environment: runs the program in the package, without importing torch."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def folder_of(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"fem: expected the Python package {package} beside this command; pip install it again")
    return Path(spec.origin).parent


os.environ.setdefault("FEM_PYTHON", sys.executable)  # draws the pictures
package, torch = folder_of("fem"), folder_of("torch")
if torch.parent != package.parent:
    paths = [str(torch / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
program = package / "bin" / "fem"
os.execv(program, [str(program), *sys.argv[1:]])
