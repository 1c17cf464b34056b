#!/usr/bin/env python3
"""The files that the layer is compared with: writes them, and checks any such file against the equations in mixer.py.

make.py                  write corrected/ and the generated part of paper/ beside this script
make.py --check DIR...   recompute every file of the folders; one line a file; exit code 1 if one deviates
"""

import argparse
import json
import math
import pathlib
import struct
import sys
import zlib

import torch

from mixer import evaluate, resolve, shapes

TOLERANCE = 1e-9


def read(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata, tensors = header.pop("__metadata__"), {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if entry["dtype"] != "F64":
            raise ValueError(f"{path}: {name} is {entry['dtype']}, expected F64")
        tensors[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float64).reshape(entry["shape"])
    return json.loads(metadata["config"]), tensors


def write(path, config, tensors):
    header, chunks, offset = {"__metadata__": {"config": json.dumps(config), "case": path.stem}}, [], 0
    for name in sorted(tensors):
        chunk = tensors[name].contiguous().numpy().astype("<f8").tobytes()
        header[name] = {
            "dtype": "F64",
            "shape": list(tensors[name].shape),
            "data_offsets": [offset, offset + len(chunk)],
        }
        chunks.append(chunk)
        offset += len(chunk)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def check(path):
    """The largest deviation of a file from this script, each tensor relative to its own largest magnitude."""
    config, stored = read(path)
    computed = evaluate(config, stored)
    results = {name for name in stored if name == "y" or name.startswith("grad.")}
    if results != set(computed):
        raise ValueError(f"{path}: results differ: {sorted(results ^ set(computed))}")
    # A gradient that is 0 by an identity (a bias that shifts all scores alike) is rounding: measured by the others.
    floor = 1e-6 * max(stored[name].abs().max() for name in results if name != "y")
    deviation = {
        name: float((computed[name] - stored[name]).abs().max() / max(stored[name].abs().max(), floor))
        for name in results
    }
    worst = max(deviation, key=lambda name: math.inf if math.isnan(deviation[name]) else deviation[name])
    good = deviation[worst] <= TOLERANCE
    print(f"{'ok  ' if good else 'FAIL'} {path.parent.name}/{path.stem:38s} {deviation[worst]:.1e}  {worst}")
    return good


def random_inputs(o, generator):
    """Inputs and parameters, none at its initial value; multiples of 2^-10, so that float32 holds them exactly."""

    def normal(shape, scale, mean=0.0):
        return mean + scale * torch.randn(shape, generator=generator, dtype=torch.float64)

    def uniform(shape, low, high):
        return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)

    tensors = {"x": normal([2, 19, o.n_embd], 1.0), "w": normal([2, 19, o.n_embd], 1.0)}
    for name, shape in shapes(o).items():
        if name == "_beta_param":
            value = uniform(shape, 0.5, 2.5)
        elif name in ("A_log", "D_diag"):
            value = normal(shape, 0.3, -1.0 if name == "A_log" else 1.0)
        elif name.endswith("out_proj"):
            # "paper" has no sqrt(H_c): a larger projection conditions as strongly.
            value = normal(shape, 0.4 if o.paper else 0.1)
        elif name.endswith((".norm.weight", ".ln.weight")):
            value = uniform(shape, 0.7, 1.3)
        else:
            value = normal(shape, 0.1 if name.endswith(".bias") else 0.4 / math.sqrt(shape[1]))
        tensors[f"param.{name}"] = value
    return {name: (value * 1024).round() / 1024 for name, value in tensors.items()}


MAMBA = dict(prior_type="mamba", ssm_rank=4)
ENCODER = dict(causal=False)
CASES = {
    "corrected": {
        "softmax": {},
        "softmax_encoder": dict(conv_bidirectional=True, **ENCODER),
        "softmax_window": dict(window=5),
        "softmax_lse_only": dict(use_temperature=False, use_inner_gate=False, use_outer_gate=False),
        "softmax_no_inner_gate": dict(use_inner_gate=False),
        "softmax_mean_only": dict(use_temperature=False, use_lse=False),
        "softmax_no_bias": dict(bias=False),
        "linear": dict(prior_type="linear"),
        "linear_encoder": dict(prior_type="linear", **ENCODER),
        "gla": dict(prior_type="gla"),
        "gla_encoder": dict(prior_type="gla", **ENCODER),
        "gla_no_bias": dict(prior_type="gla", bias=False),
        "rnn_softmax": dict(prior_type="rnn_softmax", fem_ratio=1.0),
        "rnn_softmax_narrow": dict(prior_type="rnn_softmax", fem_ratio=1.0, p_t_to_fem_ratio=1.0),
        "rnn_softmax_rope": dict(prior_type="rnn_softmax", fem_ratio=1.0, use_rope=True),
        "rnn_decay": dict(prior_type="rnn_decay"),
        "rnn_decay_encoder": dict(prior_type="rnn_decay", **ENCODER),
        "mamba": MAMBA,
        "mamba_encoder": dict(**MAMBA, **ENCODER),
        "mamba_unnormalized": dict(**MAMBA, mamba_normalize=False),
    },
    "paper": {
        "softmax_bidirectional": dict(conv_bidirectional=True, **ENCODER),
        "softmax_window": dict(window=5),
        "linear_encoder": dict(prior_type="linear", **ENCODER),
        "gla_encoder": dict(prior_type="gla", **ENCODER),
        "rnn_softmax_encoder": dict(prior_type="rnn_softmax", fem_ratio=1.0, **ENCODER),
        "rnn_decay_encoder": dict(prior_type="rnn_decay", **ENCODER),
        "mamba_encoder": dict(**MAMBA, **ENCODER),
        "mamba_rank_3": dict(prior_type="mamba", ssm_rank=3),
    },
}


def make(root):
    for dialect, cases in CASES.items():
        for case, options in cases.items():
            config = dict(n_embd=32, n_head=4, conv_hidden=8, prior_type="softmax", dialect=dialect)
            config.update(options)
            generator = torch.Generator().manual_seed(zlib.crc32(f"{dialect}/{case}".encode()))
            inputs = random_inputs(resolve(config), generator)
            write(root / dialect / f"{case}.safetensors", config, {**inputs, **evaluate(config, inputs)})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", nargs="+", type=pathlib.Path, metavar="DIR")
    folders = parser.parse_args().check
    if not folders:
        make(pathlib.Path(__file__).resolve().parent)
        return 0
    paths = [path for folder in folders for path in sorted(folder.glob("*.safetensors"))]
    good = [check(path) for path in paths]
    print(f"{sum(good)} of {len(good)} files within {TOLERANCE:g}")
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
