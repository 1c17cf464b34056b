"""What `FreeEnergyMixer.inspect` finds: computed in C++ (fem/inspect.h), named here."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Inspection:
    """The reads of N chosen tokens, in float64 whatever the layer computes in.

    B rows, T tokens, H heads, V channels a head; C is 1 where the channels of a head share one prior, else V. Where
    nothing is visible, weights and reads are 0 and choices -1. A layer that reads means only has q = p,
    beta = lambda = 0 and F = mean. mean, free_energy and gated are the prior's read of the values; what some options do
    to it afterwards is not in them: the query's factor of rnn_softmax, mamba's missing normaliser, the choice among
    channels of mamba_interact.

    Attributes:
        prior: p_t(i), [B, N, H, C, T].
        posterior: q_t^(j)(i) = p e^{beta v} / sum, [B, N, H, V, T].
        prior_choice, choice: argmax of p and of q, int64 [B, N, H, V].
        mean, free_energy: mu and F, [B, N, H, V].
        gated: u = (1 - lambda) mu + lambda F, before the outer gate.
        lambda_, outer_gate: [B, N, H, V]; in dialect paper lambda may leave [0, 1].
        beta: [H, V].
        hidden_beta: beta* with F(beta*) = u, [B, N, H, V]; NaN where no temperature has this read.
        kl_pq, kl_qp: KL(p||q) and KL(q||p) in nats, [B, N, H, V].
        prior_entropy, entropy: of p and of q in nats, [B, N, H, C] and [B, N, H, V].
        prior_rank, rank: effective rank of p and of du/dv = (1 - lambda) p + lambda q, [B, N, H].
        capped: share of the batch's values at the cap, [H, V].
        energy, energy_gradient: F* of the keys at the query and its gradient's norm (`fem.energy`), [B, N, H]; None
            unless p is a softmax of q.k over all earlier tokens.
    """

    prior: Tensor
    posterior: Tensor
    prior_choice: Tensor
    choice: Tensor
    mean: Tensor
    free_energy: Tensor
    gated: Tensor
    lambda_: Tensor
    outer_gate: Tensor
    beta: Tensor
    hidden_beta: Tensor
    kl_pq: Tensor
    kl_qp: Tensor
    prior_entropy: Tensor
    entropy: Tensor
    prior_rank: Tensor
    rank: Tensor
    capped: Tensor
    energy: Tensor | None = None
    energy_gradient: Tensor | None = None
