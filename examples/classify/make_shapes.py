#!/usr/bin/env python3
"""Draws examples/classify/shapes: five shapes, 24 x 24, anywhere, in any colour. Usage: make_shapes.py [DIR]"""

import struct
import sys
import zlib
from pathlib import Path

import numpy as np

SIDE, TRAIN, TEST = 24, 80, 30
CLASSES = ("cross", "disc", "ring", "square", "triangle")


def inside(shape: str, y: np.ndarray, x: np.ndarray, radius: float) -> np.ndarray:
    """Where a shape of that radius is, its middle at 0."""
    distance = np.hypot(y, x)
    if shape == "disc":
        return distance < radius
    if shape == "ring":
        return (distance < radius) & (distance > 0.55 * radius)
    if shape == "square":
        return np.maximum(abs(y), abs(x)) < 0.85 * radius
    if shape == "cross":
        return (np.minimum(abs(y), abs(x)) < 0.3 * radius) & (np.maximum(abs(y), abs(x)) < radius)
    return (y < 0.7 * radius) & (abs(x) < 0.6 * (y + radius))


def picture(shape: str, random: np.random.Generator) -> np.ndarray:
    radius = random.uniform(5, 9)
    middle = random.uniform(radius, SIDE - 1 - radius, 2)
    y, x = np.mgrid[:SIDE, :SIDE]
    back, colour = random.uniform(0, 90, 3), random.uniform(110, 255, 3)
    where = inside(shape, y - middle[0], x - middle[1], radius)[..., None]
    # Few levels of noise, so that the files stay small.
    noise = 8 * random.integers(-2, 3, (SIDE, SIDE, 1))
    return np.clip(np.where(where, colour, back).round() + noise, 0, 255).astype(np.uint8)


def png(pixels: np.ndarray) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def main(folder: Path) -> None:
    random = np.random.default_rng(0)
    for part, count in (("train", TRAIN), ("test", TEST)):
        for shape in CLASSES:
            own = folder / part / shape
            own.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                (own / f"{number:03}.png").write_bytes(png(picture(shape, random)))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "shapes")
