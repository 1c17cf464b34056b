"""A GPT-style block with the Free Energy Mixer where attention was, on a toy task: counting in unknown steps mod 16."""

import torch
from fem import FreeEnergyMixer, FreeEnergyMixerConfig
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_mixer = nn.LayerNorm(width)
        # Before: nn.MultiheadAttention(width, heads, batch_first=True) and a causal mask.
        self.mixer = FreeEnergyMixer(FreeEnergyMixerConfig(n_embd=width, n_head=heads))
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = x + self.mixer(self.norm_mixer(x), attention_mask)
        return x + self.mlp(self.norm_mlp(x))


def sequences(batch: int, tokens: int) -> Tensor:
    start, step = torch.randint(16, (2, batch, 1))
    return (start + step * torch.arange(tokens)) % 16


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(16, 64), Block(64, 4), nn.LayerNorm(64), nn.Linear(64, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3)
    for step in range(101):
        ids = sequences(32, 25)
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:3d}  loss {loss.item():.3f}")
