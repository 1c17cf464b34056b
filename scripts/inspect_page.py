#!/usr/bin/env python3
"""Lays out the numbers of `fem inspect` as one page that needs no network.

Usage: inspect_page.py NUMBERS.safetensors --out PAGE.html

Everything is in the numbers. They go into the page as they are, compressed; its script unpacks and draws what is looked
at. No text of theirs becomes markup: labels are inside the compressed bytes."""

import argparse
import base64
import gzip
import io
import json
import math
import struct
import sys
from pathlib import Path

import html_page
from html_page import tag

# The axes of every tensor: layers, rows (tokens that are shown whole), heads, channels, kept entries, tokens.
CHANNEL = "LNHV"
AXES = {
    "rows": "N", "prior": "LNHT", "top_token": "LNHVK", "top_weight": "LNHVK", "choice": CHANNEL,
    "prior_choice": CHANNEL, "mean": CHANNEL, "free_energy": CHANNEL, "gated": CHANNEL, "kl_pq": CHANNEL,
    "kl_qp": CHANNEL, "hidden_beta": CHANNEL, "lambda": CHANNEL, "outer_gate": CHANNEL, "entropy": CHANNEL,
    "beta": "LHV", "capped": "LHV", "rank": "LNH", "prior_rank": "LNH", "prior_entropy": "LNH",
    "map_disagree": "LT", "map_kl": "LT", "map_rank": "LT",
}  # fmt: skip
MAY_LACK = {"energy": "LNH", "energy_gradient": "LNH"}
WHOLE = {"rows", "top_token", "choice", "prior_choice"}  # numbers, of type I32
TOLD = ("title", "command", "kind", "mixer", "prior", "dialect", "causal", "tokens", "grid", "notes", "opens_at",
        "layers")  # fmt: skip
SCRIPTS = ("inspect_data.js", "inspect_words.js", "inspect_picture.js", "inspect_tokens.js", "inspect_reading.js",
           "inspect_layers.js", "inspect.js")  # fmt: skip


def check(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"expected the numbers of fem inspect: {what}")


def read(path: Path) -> tuple[dict, dict[str, dict], memoryview]:
    """What is told of the numbers, the header of every tensor and all of their bytes."""
    content = memoryview(path.read_bytes())
    length = struct.unpack("<Q", content[:8])[0] if len(content) >= 8 else 0
    check(0 < length <= len(content) - 8, f"{path} is no safetensors file")
    try:
        header = json.loads(bytes(content[8 : 8 + length]))
        about = json.loads(header.pop("__metadata__")["fem_inspect"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SystemExit(f"expected the numbers of fem inspect: {path} has no fem_inspect among its metadata") from None
    return about, header, content[8 + length :]


def verify(about: dict, header: dict[str, dict], data: memoryview) -> None:
    """That every tensor has the size that the others give it, so that the page can trust them."""
    missing = [name for name in TOLD if name not in about] + [name for name in AXES if name not in header]
    check(not missing, f"{', '.join(missing)} missing")
    sizes = {}
    for name, axes in {**AXES, **{name: axes for name, axes in MAY_LACK.items() if name in header}}.items():
        dtype, shape, (start, end) = (header[name][key] for key in ("dtype", "shape", "data_offsets"))
        check(dtype == ("I32" if name in WHOLE else "F32"), f"{name} has type {dtype}")
        check(len(shape) == len(axes), f"{name} has shape {shape}, not one of {len(axes)} axes")
        for axis, size in zip(axes, shape):
            check(
                sizes.setdefault(axis, size) == size > 0,
                f"{name} has shape {shape}, others have {axis} = {sizes[axis]}",
            )
        check(0 <= start and end <= len(data) and end - start == 4 * math.prod(shape), f"{name} is cut off")
    for name, axis in (("tokens", "T"), ("layers", "L")):
        check(len(about[name]) == sizes[axis], f"{len(about[name])} {name}, but tensors have {sizes[axis]}")
    for name, axis in (("row", "N"), ("layer", "L"), ("head", "H")):
        check(0 <= about["opens_at"][name] < sizes[axis], f"opens_at has {name} {about['opens_at'][name]}")


def picture_of(header: dict[str, dict], data: memoryview) -> str | None:
    """What a classifier was shown, as an address that needs no network."""
    if "picture" not in header:
        return None
    try:
        import numpy
        from matplotlib.image import imsave
    except ImportError:
        raise SystemExit(
            f"a picture needs the package matplotlib; install it: {sys.executable} -m pip install matplotlib"
        ) from None
    dtype, shape, (start, end) = (header["picture"][key] for key in ("dtype", "shape", "data_offsets"))
    check(dtype == "U8" and len(shape) == 3 and shape[2] == 3, f"the picture has type {dtype} and shape {shape}")
    check(0 <= start and end <= len(data) and end - start == math.prod(shape), "the picture is cut off")
    file = io.BytesIO()
    imsave(file, numpy.frombuffer(data[start:end], numpy.uint8).reshape(shape), format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def pack(about: dict, header: dict[str, dict], data: memoryview) -> str:
    """A header and the tensors, of each first every number's lowest byte, and so on: like bytes compress together."""
    tensors, planes, at = {}, [], 0
    for name in (name for name in {**AXES, **MAY_LACK} if name in header):
        start, end = header[name]["data_offsets"]
        tensors[name] = {"dtype": header[name]["dtype"], "shape": header[name]["shape"], "at": at}
        planes += [bytes(data[start:end][byte::4]) for byte in range(4)]
        at += end - start
    try:
        head = json.dumps({"about": about, "tensors": tensors}, allow_nan=False).encode()
    except ValueError:
        raise SystemExit(
            "expected the numbers of fem inspect: a statistic is not finite, where null is meant"
        ) from None
    return base64.b64encode(gzip.compress(b"".join([struct.pack("<I", len(head)), head, *planes]), 6, mtime=0)).decode()


def page(numbers: Path) -> str:
    about, header, data = read(numbers)
    verify(about, header, data)
    about["picture"] = picture_of(header, data)
    script = "".join(map(html_page.part, SCRIPTS))
    body = (
        html_page.part("inspect.html")
        + tag("script", pack(about, header, data), type="application/octet-stream", id="numbers")
        + tag("script", script, type="module")
    )
    return html_page.document("Selection microscope", html_page.digest(script), html_page.part("inspect.css"), body)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Lays out the numbers of fem inspect as one page.")
    parser.add_argument("numbers", type=Path, metavar="NUMBERS")
    parser.add_argument("--out", type=Path, required=True, metavar="PAGE")
    arguments = parser.parse_args()
    html_page.write(arguments.out, page(arguments.numbers))
