"""`FreeEnergyMixer.inspect`: what it tells is what the layer did. The formulas are tested in C++."""

import pytest
import torch
from fem import FreeEnergyMixer, FreeEnergyMixerConfig
from support import FLOAT64, TOKENS, WIDTH, random_mixer, tokens
from torch import Tensor

CHOSEN = [0, 5, TOKENS - 1]


def output_of(mixer: FreeEnergyMixer, gated: Tensor, outer_gate: Tensor) -> Tensor:
    y: Tensor = torch.nn.functional.linear((gated * outer_gate).flatten(2), mixer.W_o.weight, mixer.W_o.bias)
    return y


@torch.no_grad()
def test_put_together_is_the_layers_output(prior: str, dialect: str) -> None:
    mixer, x = random_mixer(prior, dialect=dialect, dtype=torch.float64), tokens(dtype=torch.float64)
    if prior == "rnn_softmax" and dialect != "paper":  # the factor of its query, which comes after the read, made 1
        mixer.W_q.weight.zero_()
        mixer.W_q.bias.zero_()
    found = mixer.inspect(x, CHOSEN)
    torch.testing.assert_close(
        output_of(mixer, found.gated, found.outer_gate), mixer(x)[:, CHOSEN], rtol=FLOAT64, atol=FLOAT64
    )
    torch.testing.assert_close(found.posterior.sum(-1), torch.ones_like(found.mean))
    torch.testing.assert_close(found.free_energy, found.mean + found.kl_pq / found.beta)
    assert torch.equal(found.choice, found.posterior.argmax(-1))


def test_masks_and_borders_reach_it() -> None:
    mixer, x = random_mixer(), tokens()
    mask = torch.arange(TOKENS) >= torch.tensor([[0], [4]])
    assert mixer.inspect(x, [9], mask).prior[1, ..., :4].eq(0).all()
    packed = mixer.inspect(x[:1], [9], cu_seqlens=torch.tensor([0, 7, TOKENS]))
    assert packed.prior[..., :7].eq(0).all()
    assert packed.energy is None
    assert mixer.inspect(x, [9]).energy is not None


def test_needs_no_gradients_and_says_what_it_expects() -> None:
    mixer = FreeEnergyMixer(FreeEnergyMixerConfig(n_embd=WIDTH, n_head=4))
    assert not mixer.inspect(tokens().requires_grad_(), [0]).posterior.requires_grad
    with pytest.raises(ValueError, match="inspect: expected positions from 0 to T - 1 = 11, got 12"):
        mixer.inspect(tokens(), [TOKENS])
