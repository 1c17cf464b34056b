"""An independent statement of the mixer: what the library computes, in torch float64 and nothing clever.

Written from the equations alone. Every prior is a plain [T, T] matrix per channel and gradients come from autograd:
slow, but no line and no trick is shared with the library, so that agreement means something. "corrected", "reference"
and "paper" are the library's dialects.
"""

import math
import types

import torch
import torch.nn.functional as F

DEFAULTS = dict(
    fem_dim=None,
    fem_ratio=0.5,
    qk_dim=None,
    p_t_to_fem_ratio=4.0,
    prior_type="softmax",
    softmax_backend="auto",
    dropout=0.0,
    causal=True,
    bias=True,
    beta_max_init=1.8,
    value_logexp_cap=40.0,
    eps=1e-6,
    use_temperature=True,
    use_lse=True,
    use_inner_gate=True,
    use_outer_gate=True,
    use_rope=None,
    rope_theta=10000.0,
    use_conv=True,
    conv_hidden=None,
    conv_norm_first=True,
    conv_bidirectional=False,
    ssm_rank=16,
    mamba_normalize=True,
    window=None,
    dialect="reference",
)


# ---------------------------------------------------------------------------------------------------------- sizes
def nearest(size, unit):
    """The nearest multiple of unit, exact ties down, at least one."""
    return unit * max(1, math.ceil(size / unit - 0.5))


def resolve(config):
    """Options with the defaults filled in, and the sizes that follow from them."""
    unknown = set(config) - set(DEFAULTS) - {"n_embd", "n_head"}
    if unknown:
        raise ValueError(f"unknown options {sorted(unknown)}")
    o = types.SimpleNamespace(**{**DEFAULTS, **config})
    o.paper, o.reference = o.dialect == "paper", o.dialect == "reference"
    heads, prior = o.n_head, o.prior_type
    if o.window is not None and (prior != "softmax" or not o.causal):
        raise ValueError("window: causal softmax only")
    if o.conv_bidirectional and o.causal:
        raise ValueError("conv_bidirectional: needs causal = false")
    o.width = nearest(o.fem_dim or round(o.fem_ratio * o.n_embd), 4 * heads)
    o.d_v = o.width // heads
    qk = nearest(o.qk_dim or max(2 * heads, round(o.p_t_to_fem_ratio * o.width / 2)), 2 * heads)
    o.d_k = qk // heads
    if prior == "rnn_softmax":
        o.d_k = o.d_v if o.paper else max(d for d in range(2, o.d_k + 1, 2) if o.d_v % d == 0)
    if o.use_rope is None:
        o.use_rope = prior in ("softmax", "linear", "gla") or (prior == "rnn_softmax" and o.reference)
    if o.conv_hidden is None:
        o.conv_hidden = nearest(o.width / 16, 4) if o.paper else 64
    o.free_energy = o.use_lse or o.use_temperature
    if not (o.use_inner_gate or o.free_energy):
        raise ValueError("use_inner_gate = false: needs a free-energy branch")
    o.inner_gate = o.free_energy and o.use_inner_gate
    return o


def projections(o):
    """The linear maps of the input, name -> outputs."""
    out = {"W_v": o.width}
    if o.prior_type in ("softmax", "linear", "gla", "rnn_softmax"):
        if not (o.paper and o.prior_type == "rnn_softmax"):
            out["W_q"] = o.n_head * o.d_k
        out["W_k"] = o.n_head * o.d_k
    if o.prior_type == "mamba":
        out["W_p"] = o.width + 2 * o.ssm_rank
    if o.inner_gate:
        out["W_lambda"] = o.width
    if o.use_outer_gate:
        out["W_gate"] = o.width
    if o.prior_type in ("gla", "rnn_decay"):
        out["W_decay"] = o.n_head if o.prior_type == "gla" else o.width
    return out


def conditioned(o):
    """The slices of the conditioner's output, in their order; mamba's parameters are conditioned in "paper" only."""
    return {name: size for name, size in projections(o).items() if name != "W_p" or o.paper}


def shapes(o):
    """Every parameter, name -> shape."""
    out = {"_beta_param": [o.width]}

    def linear(name, inputs, outputs):
        out[f"{name}.weight"] = [outputs, inputs]
        if o.bias:
            out[f"{name}.bias"] = [outputs]

    def norm(name, size):
        out[f"{name}.weight"] = [size]
        if o.bias:
            out[f"{name}.bias"] = [size]

    for name, size in projections(o).items():
        linear(name, o.n_embd, size)
    linear("W_o", o.width, o.n_embd)
    if o.prior_type == "mamba":
        out["A_log"], out["D_diag"] = [o.width, o.ssm_rank], [o.width]
    if o.use_conv:
        directions = ["fwd", "bwd"] if o.conv_bidirectional else ["fwd"]
        hidden = o.conv_hidden // len(directions)
        for direction in directions:
            tdc = f"tdc.{direction}."
            if o.conv_norm_first:
                norm(tdc + "norm", o.n_embd)
            for name in ("in_f", "x_f", "shortcut"):
                linear(tdc + name, o.n_embd, hidden)
            norm(tdc + "ln", hidden)
            out[tdc + "out_proj"] = [hidden, sum(conditioned(o).values())]
    return out


# ------------------------------------------------------------------------------------------------------ the mixer
def linear(p, name, x):
    return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))


def layer_norm(p, name, x):
    return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p.get(f"{name}.bias"), 1e-5)


def unit(x, floor):
    return x / x.norm(dim=-1, keepdim=True).clamp_min(floor)


def decay_matrix(g, delayed=False):
    """exp(sum of g over i < tau <= t), i <= t, else 0; delayed: i < tau < t, i < t. g [B, T, ...] -> [B, t, i, ...]."""
    tokens = g.shape[1]
    total = g.cumsum(1)
    last = total - g if delayed else total
    exponent = last.unsqueeze(2) - total.unsqueeze(1)
    support = torch.ones(tokens, tokens, dtype=torch.bool).tril(-1 if delayed else 0)
    support = support.reshape(1, tokens, tokens, *[1] * (g.dim() - 2))
    return exponent.masked_fill(~support, -math.inf).exp()


def both_ways(o, scores, *inputs):
    """Scores [B, C, t, i] of a scan; an encoder adds the scan of the reversed sequence, the diagonal counted once."""
    forward = scores(*inputs)
    if o.causal:
        return forward
    backward = scores(*[u.flip(1) for u in inputs]).flip(-1, -2)
    return forward + backward.triu(1)


def conditioner(o, p, x, direction):
    name = f"tdc.{direction}."
    n = layer_norm(p, name + "norm", x) if o.conv_norm_first else x
    s = F.softplus(linear(p, name + "in_f", n))
    h = torch.einsum("btih,bih->bth", decay_matrix(-s), linear(p, name + "x_f", n))
    a = F.softplus(linear(p, name + "shortcut", n))
    if o.paper:
        a = F.silu(unit(a, 0.0))
    else:
        a = unit(a + 1e-8, 0.0) * math.sqrt(a.shape[-1])
    return (a * layer_norm(p, name + "ln", h)) @ p[name + "out_proj"]


def rope(o, x):
    """x [B, T, H, d_k]: pairs (2m, 2m + 1) turned by t theta^(-2m / d_k); "reference" confuses the frequencies."""
    tokens, d = x.shape[1], x.shape[3]
    # The authors' file keeps its frequencies in float32, and so do the files made from it.
    m = torch.arange(d // 2, dtype=torch.float32 if o.reference else x.dtype)
    frequency = (1.0 / o.rope_theta ** (2 * m / d)).to(x.dtype)
    frequency = frequency.repeat(2) if o.reference else frequency.repeat_interleave(2)
    angle = torch.arange(tokens, dtype=x.dtype)[:, None] * frequency
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    turned = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return x * cos + turned * sin


def mixer(o, p, x):
    batch, tokens, _ = x.shape
    raw = {name: linear(p, name, x) for name in projections(o)}
    c = {name: torch.zeros(()) for name in raw}
    if o.use_conv:
        sizes = conditioned(o)
        total = conditioner(o, p, x, "fwd")
        if o.conv_bidirectional:
            total = total + conditioner(o, p, x.flip(1), "bwd").flip(1)
        c.update(zip(sizes, total.split(list(sizes.values()), dim=-1)))

    def heads(u):
        return u.unflatten(-1, (o.n_head, -1))

    def channels(u):
        """A [B, H, t, i] matrix for each channel of its head."""
        return u.repeat_interleave(o.d_v, dim=1)

    def prior_input(name):
        return raw[name] + c[name] if o.paper else raw[name] * (1 + c[name])

    support = torch.ones(tokens, tokens, dtype=torch.bool)
    if o.causal:
        support = support.tril()
    if o.window is not None:
        support = support.triu(1 - o.window)

    # The prior: p [B, E, t, i], and for rnn_softmax the factor that its query is.
    prior, factor = o.prior_type, None
    if "W_k" in raw:
        k = heads(prior_input("W_k"))
        k = rope(o, k) if o.use_rope else k
    if "W_q" in raw:
        q = heads(prior_input("W_q"))
        q = rope(o, q) if o.use_rope else q
    if prior == "softmax":
        logits = torch.einsum("bthd,bihd->bhti", q, k) / math.sqrt(o.d_k)
        weights = channels(logits.masked_fill(~support, -math.inf).softmax(-1))
    elif prior == "rnn_softmax":
        repeats = o.d_v // o.d_k
        logits = k.repeat(1, 1, 1, repeats).flatten(2).transpose(1, 2)[:, :, None, :]
        weights = logits.masked_fill(~support, -math.inf).softmax(-1)
        if not o.paper:
            factor = unit(F.softplus(q) + o.eps, 1e-5) * math.sqrt(o.d_k)
            factor = factor.repeat(1, 1, 1, repeats).flatten(2)
    else:
        if prior in ("linear", "gla"):
            phi_q, phi_k = F.relu(q) + o.eps, F.relu(k) + o.eps
            similarity = torch.einsum("bthd,bihd->bhti", phi_q, phi_k)
        if prior in ("gla", "rnn_decay"):
            if o.reference and prior == "gla":
                g = -(F.relu(raw["W_decay"]) + o.eps)
            else:
                g = -F.softplus(prior_input("W_decay"))
            decay = both_ways(o, lambda u: decay_matrix(u).permute(0, 3, 1, 2), g)
        if prior == "linear":
            scores = channels(similarity.masked_fill(~support, 0.0))
        elif prior == "gla":
            scores = channels(similarity * decay)
        elif prior == "rnn_decay":
            scores = decay
        elif prior == "mamba":
            scores = mamba_scores(o, p, prior_input("W_p") if o.paper else raw["W_p"])
        else:
            raise ValueError(f"unknown prior {prior}")
        z = scores.sum(-1, keepdim=True)
        if o.reference:
            z = z.clamp_min(o.eps)
        weights = scores if prior == "mamba" and not o.mamba_normalize else scores / z

    # The read.
    beta = F.softplus(p["_beta_param"]) + o.eps if o.use_temperature else torch.ones_like(p["_beta_param"])
    v = raw["W_v"] * (1 + c["W_v"])
    if o.reference and prior == "mamba":
        v = v.sigmoid()
    cap = o.value_logexp_cap / beta
    v = v.clamp(-cap, cap)
    mean = torch.einsum("beti,bie->bte", weights, v)
    if o.free_energy:
        energy = torch.einsum("beti,bie->bte", weights, (beta * v).exp()).log() / beta
    if o.reference and factor is not None:
        mean = mean * factor
        if o.free_energy:
            energy = energy + factor.log() / beta
    if o.inner_gate:
        if o.paper:
            gate = raw["W_lambda"].sigmoid() * (1 + c["W_lambda"])
        else:
            gate = (raw["W_lambda"] * (1 + c["W_lambda"])).sigmoid()
        u = (1 - gate) * mean + gate * energy
    else:
        u = energy if o.free_energy else mean
    if factor is not None and not o.reference:
        u = u * factor
    if o.use_outer_gate:
        logit = raw["W_gate"] if o.paper else raw["W_gate"] * (1 + c["W_gate"])
        gate = (unit(heads(F.softplus(logit) + o.eps), 1e-5) * math.sqrt(o.d_v)).flatten(2)
        u = u * (gate * (1 + c["W_gate"]) if o.paper else gate)
    return linear(p, "W_o", u)


def mamba_scores(o, p, parameters):
    """The impulse response C_t (decays from i to t) Delta_i B_i of a positive selective state space, and D at i = t."""
    delta, b, c = parameters.split([o.width, o.ssm_rank, o.ssm_rank], dim=-1)
    delta = (-F.softplus(delta)).exp() if o.reference else F.softplus(delta)
    b, c = F.softplus(b) + o.eps, F.softplus(c) + o.eps
    a = -F.softplus(p["A_log"])
    d = F.softplus(p["D_diag"]) + o.eps

    def scores(delta, b, c):
        decay = decay_matrix(delta[..., None] * a, delayed=o.paper)
        response = torch.einsum("btr,btier,bie,bir->beti", c, decay, delta, b)
        return response + d[:, None, None] * torch.eye(delta.shape[1], dtype=delta.dtype)

    return both_ways(o, scores, delta, b, c)


def evaluate(config, inputs):
    """y, and grad.* of sum(y * w), from x, w and param.*."""
    o = resolve(config)
    p = {name[6:]: t.clone().requires_grad_() for name, t in inputs.items() if name.startswith("param.")}
    found, expected = {name: list(t.shape) for name, t in p.items()}, shapes(o)
    if found != expected:
        raise ValueError(f"parameters: expected {expected}, found {found}")
    x = inputs["x"].clone().requires_grad_()
    y = mixer(o, p, x)
    names = ["x", *p]
    grads = torch.autograd.grad((y * inputs["w"]).sum(), [x, *p.values()], allow_unused=True, materialize_grads=True)
    return {"y": y.detach(), **{f"grad.{name}": g for name, g in zip(names, grads)}}
