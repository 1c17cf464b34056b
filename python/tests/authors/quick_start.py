# From the README of the authors' Free-Energy-Mixer repository, as it stands there.
# Minimal softmax prior layer (copy-paste ready). Assumes fem.py is available:
#   from fem import FreeEnergyMixer, FreeEnergyMixerConfig

import torch
from fem import FreeEnergyMixer, FreeEnergyMixerConfig

device = "cuda" if torch.cuda.is_available() else "cpu"
dtype  = torch.bfloat16 if device == "cuda" else torch.float32

B, T, D, H = 2, 128, 512, 8
x = torch.randn(B, T, D, device=device, dtype=dtype)

# Softmax prior, paper-aligned budget:
#   fem_ratio=0.5  -> fem_dim ≈ D/2
#   p_t_to_fem_ratio=4.0 -> |Q|+|K| = 4*fem_dim = 2*D (matches standard attention)
cfg = FreeEnergyMixerConfig(
    n_embd=D, n_head=H,
    prior_type="softmax",
    softmax_backend="auto",

    # Recommended sizing that matches the parameter budget of standard attention:
    #   (A) fem_ratio = 0.5, p_t_to_fem_ratio = 4.0
    #       → fem_dim ≈ D/2; total (Q+K) ≈ 2D  (same Q+K size as standard attention)
    #   (B) fem_ratio = 2/3, p_t_to_fem_ratio = 2.0
    #       → fem_dim ≈ 2D/3; total (Q+K) ≈ 4D/3  (more balanced: wider value path, lighter Q/K)
    fem_ratio=2/3,            # value path width ≈ 2D/3
    p_t_to_fem_ratio=2.0,     # total Q+K size relative to fem_dim

    use_temperature=True,     # enable FEM free-energy branch (β + LSE)
    use_lse=True,             # keep LSE branch when β=1
    use_outer_gate=True,      # multiplicative outer gate
    use_conv=True,            # lightweight time-decay conditioning (TDC)
    use_rope=True             # apply RoPE to Q/K
)

layer = FreeEnergyMixer(cfg).to(device=device, dtype=dtype)
with torch.no_grad():
    y = layer(x)     # (B,T,D)
print(y.shape)

