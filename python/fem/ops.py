"""The operators: reads under a selection prior, with a log-sum-exp of their own for every channel, and their company.

Shapes are [B, T, H, *]: batch, tokens, heads. A read takes a prior p_t(i) over the tokens i that token t may see and
returns for every channel j

    mean         mu_tj = sum_i p_t(i) v_ij
    free energy  F_tj  = 1/beta_j log sum_i p_t(i) exp(beta_j v_ij)        mu <= F <= max_i v_ij

with beta [H, V], positive; without beta only the mean. A token that sees nothing reads 0, with zero gradients.

float32 and bfloat16 (sums in float32) run fused CPU kernels, which need |beta v| <= 40: see `clip_value`. float64
runs the plain definition, other devices torch's attention and batched products. Every operator can be differentiated
twice and works under torch.compile, torch.export, torch.utils.checkpoint, torch.autocast (reads in bfloat16, states
and `decay_scan` in float32) and torch.func: vmap calls kernels once per element; grad, vjp and jvp take the
definition, which keeps more memory. Wrong arguments are ValueErrors.
"""

from typing import Any

import torch
from torch import Tensor

from fem import _library  # noqa: F401
from fem._reads import FreeEnergyRead, RecurrentRead, SoftmaxRead

__all__ = [
    "FreeEnergyRead",
    "RecurrentRead",
    "SoftmaxRead",
    "aft_read",
    "channel_read",
    "clip_value",
    "decay_read",
    "decay_scan",
    "free_energy_attention",
    "free_energy_read",
    "gated_read",
    "linear_read",
    "newton_read",
    "softmax_read",
    "ssm_read",
]


def free_energy_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    beta: Tensor,
    *,
    bias: Tensor | None = None,
    slopes: Tensor | None = None,
    scale: float | None = None,
    causal: bool = True,
    window: int | None = None,
    key_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """The free energy of `softmax_read` alone: attention whose channels each select for themselves.

    F_tj = 1/beta_j log sum_i softmax_i(scale q_t.k_i + b_ti) exp(beta_j v_ij): from plain attention at beta -> 0 to
    each channel's maximum over the visible tokens at beta -> infinity.

    >>> query, key, value = torch.randn(3, 1, 128, 8, 64).unbind()
    >>> free_energy_attention(query, key, value, torch.ones(8, 64)).shape
    torch.Size([1, 128, 8, 64])
    """
    out: Tensor = torch.ops.fem.free_energy_attention(
        query, key, value, beta, bias, slopes, scale, causal, window, key_mask, cu_seqlens
    )
    return out


def softmax_read(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    beta: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    slopes: Tensor | None = None,
    scale: float | None = None,
    causal: bool = True,
    window: int | None = None,
    key_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
) -> SoftmaxRead:
    """The read under attention's prior, p_t(i) = softmax_i(scale q_t.k_i + b_ti) over what t may see.

    Gradients flow to query, key, value, beta and bias; nothing of size Tq x Tk is kept but a bias and its gradient.
    Without beta: plain attention.

    Args:
        query, key, value: [B, Tq, H, K], [B, Tk, H, K], [B, Tk, H, V].
        beta: [H, V], positive.
        bias: [H or 1, Tq, Tk] added to the scores; 0 unless given.
        slopes: [H] ALiBi: slope times the distance of query and key is taken off the scores. Without a gradient.
        scale: of the products q_t.k_i; 1/sqrt(K) unless given.
        causal: query t is position Tk - Tq + t and sees no later key.
        window: sees only keys closer than this: itself and window - 1 before (and, if not causal, after).
        key_mask: [B, Tk] bool, true = a real token.
        cu_seqlens: [n + 1] int, borders 0 ... T of sequences packed in one row (B = 1).

    >>> query, key, value = torch.randn(3, 2, 16, 4, 8).unbind()
    >>> read = softmax_read(query, key, value, torch.ones(4, 8), window=5)
    >>> bool((read.mean <= read.free_energy + 1e-6).all())
    True

    ALiBi is a bias that need not be kept:

    >>> slopes = 2.0 ** (-8 * torch.arange(1, 5) / 4)
    >>> distance = (torch.arange(16)[:, None] - torch.arange(16)).abs()
    >>> biased = softmax_read(query, key, value, bias=-slopes[:, None, None] * distance)
    >>> torch.allclose(softmax_read(query, key, value, slopes=slopes).mean, biased.mean, atol=1e-6)
    True
    """
    mean, free_energy, log_normalizer = torch.ops.fem.softmax_read(
        query, key, value, beta, bias, slopes, scale, causal, window, key_mask, cu_seqlens
    )
    return SoftmaxRead(mean, None if beta is None else free_energy.to(mean.dtype), log_normalizer)


def newton_read(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Tensor,
    *,
    of_values: bool = False,
    rho: float = 0.0,
    scale: float | None = None,
    causal: bool = True,
    key_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """Attention preconditioned by the covariance of the keys, or values, under its own weights: a Newton step.

    With p_t = softmax(scale q_t.k), u = k (or v), m = sum p u and g = m - rho q it reads sum_i w_i v_i with
    w_i = p_i (1 + alpha (u_i.g - m.g)), which sum to 1. Gradients flow to query, key, value and alpha.

    Args:
        query, key, value: [B, Tq, H, K], [B, Tk, H, K], [B, Tk, H, V].
        alpha: [H]; 0 is attention, scale the Newton step of the energy where values are keys.
        of_values: the covariance is that of the values.
        rho: share of -q in the gradient; by keys only.
        scale: of the products q_t.k_i; 1/sqrt(K) unless given.
        causal, key_mask, cu_seqlens: as of `softmax_read`.

    >>> query, key, value = torch.randn(3, 2, 16, 4, 8).unbind()
    >>> plain = newton_read(query, key, value, torch.zeros(4))
    >>> torch.allclose(plain, softmax_read(query, key, value).mean, atol=1e-6)
    True
    """
    read: Tensor = torch.ops.fem.newton_read(
        query, key, value, alpha, of_values, rho, scale, causal, key_mask, cu_seqlens
    )[0]
    return read


def free_energy_read(p: Tensor, v: Tensor, beta: Tensor) -> FreeEnergyRead:
    """The read under a prior of your own, which holds Tq x Tk numbers.

    Plain ATen on every device. Gradients flow to all three, and nothing overflows, whatever beta v: no need to clip.

    Args:
        p: [B, H, Tq, Tk], not negative. Rows are normalised first; a row of zeros reads 0, with zero gradients.
        v: [B, Tk, H, V].
        beta: [H, V], positive.

    With attention's own prior it is `softmax_read`:

    >>> query, key, value = torch.randn(3, 2, 16, 4, 8).unbind()
    >>> beta = torch.ones(4, 8)
    >>> p = torch.einsum("bthk,bihk->bhti", query, key).div(8**0.5).softmax(-1)
    >>> read = softmax_read(query, key, value, beta, causal=False)
    >>> torch.allclose(free_energy_read(p, value, beta).free_energy, read.free_energy, atol=1e-5)
    True
    """
    return FreeEnergyRead(*torch.ops.fem.free_energy_read(p, v, beta))


def linear_read(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    beta: Tensor | None = None,
    *,
    log_decay: Tensor | None = None,
    causal: bool = True,
    key_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial: Tensor | None = None,
) -> RecurrentRead:
    """The read of linear attention, p_t(i) ~ exp(sum_{tau=i+1..t} log_decay_tau) q_t.k_i; gated if log_decay is given.

    Time and memory grow as T. Gradients flow to every floating input.

    Args:
        query, key: [B, T, H, K], not negative.
        value: [B, T, H, V].
        beta: [H, V], positive.
        log_decay: [B, T, H], <= 0; -inf forgets the past exactly.
        causal: False: every token of the sequence is seen, from both sides.
        key_mask: [B, T] bool, true = a real token; others add nothing and let no time pass.
        cu_seqlens: [n + 1] int, borders 0 ... T of sequences packed in one row (B = 1).
        initial: the state of an earlier call, [N, H, K, 2 V + 1] (V + 1 without beta); N = B, or n with cu_seqlens.

    Returns:
        log_normalizer is [B, T, H]; the state is sum_i decay key_i x [v_i, exp(beta v_i), 1].

    A sequence may be read in pieces:

    >>> query, key, value = torch.rand(3, 2, 10, 4, 8).unbind()
    >>> beta = torch.ones(4, 8)
    >>> whole = linear_read(query, key, value, beta)
    >>> first = linear_read(query[:, :6], key[:, :6], value[:, :6], beta)
    >>> rest = linear_read(query[:, 6:], key[:, 6:], value[:, 6:], beta, initial=first.state)
    >>> torch.allclose(rest.free_energy, whole.free_energy[:, 6:], atol=1e-6)
    True
    """
    return _recurrent(
        torch.ops.fem.linear_read(query, key, value, beta, log_decay, causal, key_mask, cu_seqlens, initial),
        beta,
        causal,
    )


def channel_read(
    value: Tensor,
    beta: Tensor | None = None,
    *,
    log_weight: Tensor | None = None,
    log_decay: Tensor | None = None,
    causal: bool = True,
    key_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial: Tensor | None = None,
) -> RecurrentRead:
    """The read whose prior is one of its own for every channel.

    p_t(i) ~ exp(log_weight_i + sum_{tau=i+1..t} log_decay_tau). Time and memory grow as T; weights of any size neither
    overflow nor vanish. Gradients flow to every floating input; those of a state are those of sums e^m.

    Args:
        value: [B, T, H, V].
        beta: [H, V], positive.
        log_weight, log_decay: [B, T, H, V], log_decay <= 0; at least one is given, the other counts as 0.
        causal, key_mask, cu_seqlens: as in `linear_read`.
        initial: the state of an earlier call, [N, 4, H, V] ([N, 3, H, V] without beta).

    Returns:
        log_normalizer is [B, T, H, V]; the state is a scale m and the sums e^-m sum_i weight_i [1, v_i, exp(beta v_i)].

    >>> value = torch.tensor([1.0, 3.0, 2.0]).view(1, 3, 1, 1)
    >>> channel_read(value, log_weight=torch.zeros_like(value)).mean.flatten()
    tensor([1., 2., 2.])
    """
    return _recurrent(
        torch.ops.fem.channel_read(value, beta, log_weight, log_decay, causal, key_mask, cu_seqlens, initial),
        beta,
        causal,
    )


def aft_read(
    key: Tensor,
    value: Tensor,
    beta: Tensor | None = None,
    *,
    causal: bool = True,
    key_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial: Tensor | None = None,
) -> RecurrentRead:
    """The attention-free transformer's prior, p_t(i) ~ exp(key_i): `channel_read` with log_weight = key alone."""
    return channel_read(
        value, beta, log_weight=key, causal=causal, key_mask=key_mask, cu_seqlens=cu_seqlens, initial=initial
    )


def decay_read(
    value: Tensor,
    beta: Tensor | None,
    log_decay: Tensor,
    *,
    causal: bool = True,
    key_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial: Tensor | None = None,
) -> RecurrentRead:
    """A linear RNN's prior, p_t(i) ~ exp(sum_{tau=i+1..t} log_decay_tau): `channel_read` with log_decay alone."""
    return channel_read(
        value, beta, log_decay=log_decay, causal=causal, key_mask=key_mask, cu_seqlens=cu_seqlens, initial=initial
    )


def ssm_read(
    value: Tensor,
    beta: Tensor | None = None,
    *,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    causal: bool = True,
    key_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial: Tensor | None = None,
    delayed: bool = False,
) -> RecurrentRead:
    """The read of a diagonal selective state-space model with a positive impulse response, per channel.

        h_t = exp(delta_t A) h_{t-1} + delta_t B_t u_t      (S u)_t = C_t.h_t + D u_t

    p_t(i) ~ the response of S at t to an impulse at i: mean = S v / S 1, free_energy = 1/beta log(S e^{beta v} / S 1).
    Time and memory grow as T. Gradients flow to every floating input.

    Args:
        value: [B, T, H, V].
        beta: [H, V], positive.
        delta: [B, T, H, V], not negative.
        A: [H, V, R], not positive.
        B, C: [B, T, R], not negative, shared by all channels.
        D: [H, V], not negative.
        causal, key_mask, cu_seqlens: as in `linear_read`.
        initial: the state of an earlier call, [N, 3, H, V, R] ([N, 2, H, V, R] without beta).
        delayed: (S u)_t = C_t.h_{t-1} + D u_t: a token reaches the state after it was read.

    Returns:
        log_normalizer is [B, T, H, V]; the state is h for the inputs 1, v, exp(beta v).
    """
    return _recurrent(
        torch.ops.fem.ssm_read(value, beta, delta, A, B, C, D, delayed, causal, key_mask, cu_seqlens, initial),
        beta,
        causal,
    )


def decay_scan(u: Tensor, log_decay: Tensor, *, initial: Tensor | None = None) -> Tensor:
    """h_t = exp(log_decay_t) h_{t-1} + u_t along dimension 1, h_{-1} = initial (0 unless given).

    Exact at any length: nothing is divided by a cumulative decay. Gradients flow to all three.

    Args:
        u, log_decay: [B, T, C]; log_decay <= 0, -inf forgets the past exactly (the border of a packed sequence).
        initial: [B, C]; the last h of an earlier call continues it.

    >>> decay_scan(torch.ones(1, 3, 1), torch.full((1, 3, 1), 0.5).log()).flatten()
    tensor([1.0000, 1.5000, 1.7500])
    """
    h: Tensor = torch.ops.fem.decay_scan(u, log_decay, initial)
    return h


def gated_read(
    mean: Tensor,
    free_energy: Tensor | None = None,
    *,
    temperature_logit: Tensor | None = None,
    gate_logit: Tensor | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """Both gates of the mixer in one pass. All [B, T, H, V]; the logits are before their nonlinearity.

        lambda = sigmoid(temperature_logit)                          inner gate
        g      = sqrt(V) normalise(softplus(gate_logit) + eps)       outer gate, l2 over V with floor 1e-5
        out    = g ((1 - lambda) mean + lambda free_energy)

    Without free_energy and temperature_logit the inner gate is open to the mean alone; without gate_logit g = 1.
    Gradients flow to all four.
    """
    out: Tensor = torch.ops.fem.gated_read(mean, free_energy, temperature_logit, gate_logit, eps)
    return out


def clip_value(value: Tensor, beta: Tensor, cap: float = 40.0) -> Tensor:
    """value [B, T, H, V] limited to |beta v| <= cap, with beta [H, V] and cap in (0, 40]: what the kernels need.

    >>> clip_value(torch.tensor([[[[-100.0, 1.0]]]]), torch.tensor([[2.0, 2.0]]))
    tensor([[[[-20.,   1.]]]])
    """
    if not 0 < cap <= 40:
        raise ValueError(f"clip_value: expected cap in (0, 40], where exp(beta v) fits float32, got {cap}")
    limit = cap / beta
    return value.clamp(-limit, limit)


def _recurrent(outputs: Any, beta: Tensor | None, causal: bool) -> RecurrentRead:
    # An operator always returns tensors: those that are not there have no elements.
    mean, free_energy, log_normalizer, state = outputs
    return RecurrentRead(mean, None if beta is None else free_energy, log_normalizer, state if causal else None)
