"""The model of configs/lm/*-attention.toml as one would write it in PyTorch, trained eagerly for some steps.

Prints one JSON line: parameters and the seconds of every step. Usage: torch_gpt.py RECIPE.toml --steps N
"""

import argparse
import json
import time
from pathlib import Path

import tomllib
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k = rotated(q, cosine, sine), rotated(k, cosine, sine)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(y.transpose(1, 2).reshape(batch, length, width))


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cosine + torch.cat((-b, a), -1) * sine


class Block(nn.Module):
    def __init__(self, width: int, heads: int, mlp_width: int, eps: float) -> None:
        super().__init__()
        self.mixer_norm, self.mlp_norm = nn.RMSNorm(width, eps), nn.RMSNorm(width, eps)
        self.mixer = Attention(width, heads)
        self.gate = nn.Linear(width, mlp_width, bias=False)
        self.up = nn.Linear(width, mlp_width, bias=False)
        self.down = nn.Linear(mlp_width, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.mixer(self.mixer_norm(x), cosine, sine)
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, mlp_width: int, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, mlp_width, 1e-5) for _ in range(layers))
        self.norm = nn.RMSNorm(width, 1e-5)
        half = width // heads // 2
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(half) / half)).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return F.linear(self.norm(x), self.embedding.weight)


def main(recipe: Path, steps: int) -> None:
    config = tomllib.loads(recipe.read_text())
    model_options, train, length = config["model"], config["train"], config["data"]["length"]
    torch.manual_seed(0)
    vocabulary = model_options.get("vocab_size", 257)
    model = GPT(
        vocabulary,
        model_options["n_embd"],
        model_options["n_head"],
        model_options["n_layer"],
        model_options["mlp_width"],
        length,
    )
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=train["learning_rate"],
        betas=(0.9, 0.95),
        fused=True,
    )
    batch = train["batch"]
    micro = train.get("micro_batch", batch)
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        for _ in range(batch // micro):
            tokens = torch.randint(256, (micro, length + 1))
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) * (micro / batch)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"parameters": sum(p.numel() for p in model.parameters()), "seconds": seconds}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, metavar="RECIPE")
    parser.add_argument("--steps", type=int, default=30)
    arguments = parser.parse_args()
    main(arguments.recipe, arguments.steps)
