"""Numbers in the format of fem inspect, made up: no model has them, but every identity of a read holds.

Usage: made_up.py FILE.safetensors [text | hostile | series | image | large | attention]"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

HOSTILE = ["</script><script>window.hacked = 1</script>", "<img src=x onerror='window.hacked = 1'>", "\u2028",
           "\"'`&amp;", "\0", " ", "\n", "\u202e", "javascript:window.hacked=1", "]]>", "<!--", "\t", ""]  # fmt: skip
SPEECH = ("O ROMEO, ROMEO! wherefore art thou ROMEO?\nDeny thy father and refuse thy name;\nOr, if thou wilt not, be "
          "but sworn my love,\nAnd I'll no longer be a Capulet.\n")  # fmt: skip
BINS = 32
DTYPES = {"U8": "u1", "I32": "<i4", "F32": "<f4"}


def words_of(text: str) -> list[str]:
    """As a tokenizer would cut them: a space belongs to the word behind it."""
    found = [""]
    for character in text:
        if character in " \n,;.?!'" or found[-1].endswith("\n"):
            found.append("")
        found[-1] += character
    return [word for word in found if word]


def free_energy(p: np.ndarray, v: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """p [H, T], v [H, V, T], beta [H, V]."""
    largest = v.max(-1)
    total = (p[:, None] * np.exp(beta[..., None] * (v - largest[..., None]))).sum(-1)
    return largest + np.log(total) / beta


def divergence(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(a > 0, a * (np.log(np.maximum(a, 1e-300)) - np.log(np.maximum(b, 1e-300))), 0).sum(-1)


def entropy(p: np.ndarray) -> np.ndarray:
    return -np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0).sum(-1)


def effective_rank(weights: np.ndarray) -> np.ndarray:
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(weights @ weights.swapaxes(-1, -2)), 0))
    return np.exp(entropy(values / values.sum(-1, keepdims=True)))


def read_of(noise, p, v, beta, kept: int) -> dict[str, np.ndarray]:
    """One token's reads: the hidden temperature is drawn, the gate follows from it."""
    hidden = beta * noise.uniform(0.05, 0.95, beta.shape)
    mean = (p[:, None] * v).sum(-1)
    whole, gated = free_energy(p, v, beta), free_energy(p, v, hidden)
    gate = (gated - mean) / np.maximum(whole - mean, 1e-12)
    q = p[:, None] * np.exp(beta[..., None] * (v - v.max(-1, keepdims=True)))
    q /= q.sum(-1, keepdims=True)
    top = np.argsort(-q, -1)[..., :kept]
    weight = np.take_along_axis(q, top, -1)
    weights = (1 - gate)[..., None] * p[:, None] + gate[..., None] * q
    return {
        "prior": p, "top_token": np.where(weight > 0, top, -1), "top_weight": weight, "choice": q.argmax(-1),
        "prior_choice": np.broadcast_to(p.argmax(-1)[:, None], beta.shape), "mean": mean, "free_energy": whole,
        "gated": gated, "kl_pq": divergence(p[:, None], q), "kl_qp": divergence(q, p[:, None]), "hidden_beta": hidden,
        "lambda": gate, "outer_gate": noise.gamma(4, 0.25, beta.shape), "entropy": entropy(q),
        "rank": effective_rank(weights), "prior_rank": np.ones(len(p)), "prior_entropy": entropy(p),
    }  # fmt: skip


def plain(read: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same prior in plain attention."""
    tokens = np.argsort(-read["prior"], -1)[:, None, : read["top_token"].shape[-1]]
    tokens = np.broadcast_to(tokens, read["top_token"].shape)
    weight = np.take_along_axis(read["prior"][:, None] + 0 * read["mean"][..., None], tokens, -1)
    zero = 0 * read["mean"]
    return {
        **read, "top_token": np.where(weight > 0, tokens, -1), "top_weight": weight, "choice": read["prior_choice"],
        "free_energy": read["mean"], "gated": read["mean"], "kl_pq": zero, "kl_qp": zero, "hidden_beta": zero,
        "lambda": zero, "outer_gate": zero + 1, "entropy": np.broadcast_to(read["prior_entropy"][:, None], zero.shape),
        "rank": np.ones(len(zero)),
    }  # fmt: skip


def statistics(tensors: dict[str, np.ndarray], layer: int) -> dict:
    beta = tensors["hidden_beta"][layer].ravel()
    counts, edges = np.histogram(beta, BINS, (0, float(beta.max()) or 1))
    low, median, high = np.quantile(beta, (0.1, 0.5, 0.9))
    mean = {name: float(tensors[name][layer].mean()) for name in ("rank", "prior_rank", "lambda", "capped")}
    return {
        **mean, "moved": 0.4 * mean["lambda"], "disagree": float(tensors["map_disagree"][layer].mean()),
        "kl": float(tensors["map_kl"][layer].mean()),
        "hidden_beta": {"median": median, "low": low, "high": high, "edges": edges.tolist(), "counts": counts.tolist()},
        "energy": None, "energy_gradient": None,
    }  # fmt: skip


def made_up(labels: list[str], layers: int, heads: int, channels: int, rows: list[int], kept=8, causal=True,
            distinct: int | None = None, attention=False, **about) -> tuple[dict, dict[str, np.ndarray]]:  # fmt: skip
    """distinct: how many layers are made, which the others repeat."""
    noise, tokens = np.random.default_rng(1), len(labels)
    distinct = distinct or layers
    reads = {}
    betas = noise.gamma(3, 0.5, (distinct, heads, channels)) + 0.1
    for layer in range(distinct):
        sharp = 0.6 + 2.0 * (layer + 1) / distinct
        scores = noise.normal(0, sharp, (heads, len(rows), tokens)) - 0.02 * np.abs(
            np.subtract.outer(rows, range(tokens))
        )
        values = noise.standard_t(4, (heads, channels, tokens)) * np.exp(noise.normal(-0.4, 0.6, (heads, channels, 1)))
        for place, row in enumerate(rows):
            logits = np.where(np.arange(tokens) <= row, scores[:, place], -np.inf) if causal else scores[:, place]
            p = np.exp(logits - logits.max(-1, keepdims=True))
            read = read_of(noise, p / p.sum(-1, keepdims=True), values, betas[layer], kept)
            for name, value in (plain(read) if attention else read).items():
                reads.setdefault(name, []).append(value)
    repeat = [layer % distinct for layer in range(layers)]
    tensors = {
        name: np.stack(all_).reshape(distinct, len(rows), *all_[0].shape)[repeat] for name, all_ in reads.items()
    }
    tensors["beta"] = 0 * betas[repeat] if attention else betas[repeat]
    tensors["capped"] = noise.uniform(0, 0.002, tensors["beta"].shape) * (not attention)
    tensors["rows"] = np.array(rows)
    shown = {"disagree": (tensors["choice"] != tensors["prior_choice"]).mean((2, 3)),
             "kl": tensors["kl_qp"].mean((2, 3)), "rank": tensors["rank"].mean(2)}  # fmt: skip
    for name, values in shown.items():  # of tokens that are not shown whole: that of another one
        tensors["map_" + name] = values[:, np.arange(tokens) * len(rows) // tokens]
        tensors["map_" + name][:, rows] = values
    interesting = np.unravel_index(shown["disagree"].argmax(), shown["disagree"].shape)
    defaults = {
        "title": "made up", "command": "fem inspect runs/book --text 'O ROMEO' --out page.html", "kind": "text",
        "mixer": "attention" if attention else "fem", "prior": "softmax", "dialect": "corrected", "causal": causal,
        "tokens": labels, "grid": None, "notes": [],
        "opens_at": {"row": int(interesting[1]), "layer": int(interesting[0]), "head": heads - 1},
        "layers": [statistics(tensors, layer) for layer in range(layers)],
    }  # fmt: skip
    return {**defaults, **about}, tensors


def save(path: Path, about: dict, tensors: dict[str, np.ndarray]) -> None:
    header, parts, at = {"__metadata__": {"fem_inspect": json.dumps(about)}}, [], 0
    for name, values in tensors.items():
        dtype = {"u": "U8", "i": "I32", "f": "F32"}[values.dtype.kind]
        parts.append(np.ascontiguousarray(values, DTYPES[dtype]).tobytes())
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [at, at + len(parts[-1])]}
        at += len(parts[-1])
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def text() -> tuple[dict, dict]:
    labels = words_of(SPEECH)
    rows = [token for token in range(len(labels)) if token % 5 != 2]
    note = (
        f"{len(rows)} of {len(labels)} tokens are shown whole: those where channels disagree most, and an even spread."
    )
    title = "runs/book: 'O ROMEO, ROMEO! wherefore art thou …'"
    about, tensors = made_up(labels, 4, 2, 16, rows, title=title, notes=[note])
    tensors["hidden_beta"][..., 5] = np.nan  # no temperature gives these reads
    return about, tensors


def hostile() -> tuple[dict, dict]:
    labels = HOSTILE + ["a", "b"]
    words = {"title": HOSTILE[0], "command": HOSTILE[1], "mixer": HOSTILE[0], "notes": [HOSTILE[1]]}
    return made_up(labels, 2, 1, 4, list(range(len(labels))), **words)


def series() -> tuple[dict, dict]:
    """With energies, which not all mixers have."""
    labels = [f"{hour:02}:00-{hour + 2:02}:00" for hour in range(0, 24, 2)]
    title = "runs/ett: electricity, 24 hours"
    about, tensors = made_up(labels, 3, 2, 16, list(range(12)), causal=False, kind="series", title=title)
    noise = np.random.default_rng(3)
    for name, middle in (("energy", -30), ("energy_gradient", 2)):
        tensors[name] = noise.normal(middle, 0.3, tensors["rank"].shape)
        for layer, told in enumerate(about["layers"]):
            told[name] = float(tensors[name][layer].mean())
    return about, tensors


def image() -> tuple[dict, dict]:
    y, x = np.mgrid[-1:1:28j, -1:1:28j]
    ring = 255 * np.exp(-(((np.hypot(x, y * 0.8) - 0.6) / 0.15) ** 2))
    labels = ["class"] + [f"row {row}, column {column}" for row in range(1, 8) for column in range(1, 8)]
    grid = {"rows": 7, "columns": 7, "first": 1}
    title = "runs/digits: a zero"
    about, tensors = made_up(labels, 4, 2, 16, list(range(50)), causal=False, kind="image", grid=grid, title=title)
    return about, {**tensors, "picture": np.stack([ring, ring, 0.6 * ring], -1).astype(np.uint8)}


def large() -> tuple[dict, dict]:
    """2,000 tokens, 12 layers, 64 channels in 4 heads. Layers repeat: too far apart for the compression to see."""
    labels = (words_of(SPEECH) * 60)[:2000]
    rows = sorted(np.random.default_rng(2).choice(2000, 64, replace=False).tolist())
    return made_up(labels, 12, 4, 16, rows, distinct=1, title="2,000 tokens")


def attention() -> tuple[dict, dict]:
    labels = words_of(SPEECH)[:12]
    return made_up(labels, 2, 1, 4, list(range(12)), attention=True)


if __name__ == "__main__":
    kinds = {made.__name__: made for made in (text, hostile, series, image, large, attention)}
    save(Path(sys.argv[1]), *kinds[sys.argv[2] if len(sys.argv) > 2 else "text"]())
