"""The options: one list with C++, checked when they are made."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from fem import FreeEnergyMixer, FreeEnergyMixerConfig
from support import small_config, tokens

OPTIONS_H = Path(__file__).parents[2] / "include/fem/options.h"


def test_fields_and_defaults_are_those_of_cpp() -> None:
    known = json.loads(torch.ops.fem.mixer_config('{"n_embd": 8, "n_head": 2}'))
    assert dataclasses.asdict(FreeEnergyMixerConfig(n_embd=8, n_head=2)) == known
    assert {type(v) for v in known.values()} == {int, float, str, bool, type(None)}


def test_order_is_that_of_cpp() -> None:
    declared = re.findall(r'visit\("(\w+)"', OPTIONS_H.read_text())
    assert [field.name for field in dataclasses.fields(FreeEnergyMixerConfig)] == declared


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_head": 5}, "expected n_embd to be a multiple of n_head, got n_embd=32 and n_head=5"),
        ({"n_head": 2.5}, "expected n_head to be an integer, got 2.5"),
        ({"n_head": "4"}, 'expected n_head to be an integer, got "4"'),
        ({"n_embd": True}, "expected n_embd to be an integer, got true"),
        ({"n_embd": 0}, "expected n_embd of at least 1, got 0"),
        ({"use_rope": 1}, "expected use_rope to be true or false, got 1"),
        ({"bias": None}, "expected bias to be true or false, got null"),
        ({"fem_ratio": "half"}, 'expected fem_ratio to be a number, got "half"'),
        ({"fem_ratio": float("nan")}, "expected fem_ratio to be a finite number"),
        ({"rope_theta": float("inf")}, "expected rope_theta to be a finite number"),
        ({"fem_dim": [16]}, r"expected fem_dim to be .*, got \[16\]"),
        ({"ssm_rank": torch.tensor(4)}, r"expected ssm_rank to be .*, got tensor\(4\)"),
        ({"ssm_rank": np.int64(4)}, r"expected ssm_rank to be .*, got .*4"),
        ({"prior_type": "attention"}, 'expected prior_type to be one of "softmax", .*"mamba", got "attention"'),
        ({"softmax_backend": "flash"}, 'flash-attn.* needs CUDA .* expected "auto" .*"fused", "reference" or "sdpa"'),
        ({"dialect": "thesis"}, 'expected dialect to be one of "corrected", "reference", "paper", got "thesis"'),
        ({"dropout": 1.0}, r"expected dropout in \[0, 1\), got 1"),
        ({"value_logexp_cap": 50.0}, r"expected value_logexp_cap in \(0, 40\], got 50"),
        ({"eps": 0.0}, "expected eps > 0, got 0"),
        ({"window": 0}, "expected a window of at least 1 token, got 0"),
        ({"window": 4, "prior_type": "gla"}, "a window belongs to prior_type softmax"),
        ({"conv_bidirectional": True}, "expected causal to be false with it, got true"),
        ({"mamba_interact": True}, "mamba_interact needs prior_type mamba"),
        ({"use_inner_gate": False, "use_lse": False, "use_temperature": False}, "the free energy is read, but use_lse"),
        ({"softmax_backend": "sdpa", "prior_type": "linear"}, "expected auto with another prior"),
    ],
)
def test_wrong_values_say_what_was_expected(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match="^mixer options: .*" + message) as raised:
        FreeEnergyMixerConfig(**{"n_embd": 32, "n_head": 4, **fields})
    assert "\n" not in str(raised.value).rstrip() and len(str(raised.value)) < 250, "one sentence, no stack"


def test_unknown_fields_are_errors() -> None:
    with pytest.raises(TypeError, match="n_heads"):
        FreeEnergyMixerConfig(n_embd=8, n_heads=2)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r'unknown field "n_heads"; did you mean n_head\?'):
        FreeEnergyMixerConfig.from_json('{"n_embd": 8, "n_head": 2, "n_heads": 2}')
    with pytest.raises(ValueError, match="mixer options: expected JSON, but line 1, column 2"):
        FreeEnergyMixerConfig.from_json("nothing of the kind")
    with pytest.raises(ValueError, match="mixer options: expected JSON of at most 64 levels"):
        FreeEnergyMixerConfig.from_json("[" * 66_000 + "]" * 66_000)
    with pytest.raises(ValueError, match="expected fem_dim of at most 1048576, got 9223372036854775807"):
        FreeEnergyMixerConfig(8, 2, fem_dim=2**63 - 1)


@pytest.mark.parametrize("backend", ["auto", "fused", "reference", "sdpa"])
def test_every_softmax_backend_is_accepted(backend: str) -> None:
    assert FreeEnergyMixer(small_config(softmax_backend=backend))(tokens()).isfinite().all()


def test_json_round_trip() -> None:
    config = FreeEnergyMixerConfig(
        n_embd=48, n_head=6, fem_dim=24, dropout=0.1, window=7, causal=False, conv_bidirectional=True, eps=1e-7
    )
    assert FreeEnergyMixerConfig.from_json(config.to_json()) == config
    assert FreeEnergyMixerConfig.from_json('{"n_embd": 8, "n_head": 2}') == FreeEnergyMixerConfig(8, 2)


def test_a_contradiction_made_later_is_found_by_the_mixer() -> None:
    config = small_config()
    config.n_head = 5
    with pytest.raises(ValueError, match="multiple of n_head"):
        FreeEnergyMixer(config)


def test_a_misspelt_assignment_is_found_by_the_mixer() -> None:
    config = small_config()
    config.use_ropes = False  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r'unknown field "use_ropes"; did you mean use_rope\?'):
        FreeEnergyMixer(config)


def test_a_mixer_keeps_its_own_config() -> None:
    config = small_config(use_rope=True)
    mixer = FreeEnergyMixer(config).eval()
    x = tokens()
    before = mixer(x)
    config.use_rope = False
    config.prior_type = "gla"
    assert mixer.config == small_config(use_rope=True)
    assert torch.equal(mixer(x), before)


def test_letters_choose_parts_and_a_width_of_equal_parameters(prior: str, dialect: str) -> None:
    config = small_config(prior, dialect=dialect, n_embd=256, n_head=4, conv_hidden=None)
    full = sum(p.numel() for p in FreeEnergyMixer(config).parameters())
    for letters in ("", "C", "CL", "CLT", "CLTG", "L", "LT", "LTG"):
        choice = config.with_letters(letters)
        mixer = FreeEnergyMixer(choice.config)
        parts = {name.split(".")[0] for name, _ in mixer.named_parameters()}
        assert (("W_lambda" in parts), ("W_gate" in parts), ("tdc" in parts)) == tuple(c in letters for c in "TGC")
        assert choice.config.use_lse == ("L" in letters) and choice.config.use_temperature == ("T" in letters)
        assert choice.parameters == sum(p.numel() for p in mixer.parameters())
        assert choice.full_parameters == full
        # A step of the value width is 16 channels, at most 6 weights wide in model and conditioner.
        assert abs(choice.parameters - full) <= 3 * 16 * (256 + 64 + 2), letters
        assert f"value width {choice.config.fem_dim}" in str(choice)
    assert replace_widths(config.with_letters("CLTG").config) == replace_widths(config)


def replace_widths(config: FreeEnergyMixerConfig) -> FreeEnergyMixerConfig:
    return dataclasses.replace(config, fem_dim=None, qk_dim=None, conv_hidden=None)


def test_plain_softmax_is_attention_of_the_full_width() -> None:
    choice = FreeEnergyMixerConfig(n_embd=256, n_head=4, conv_hidden=8, dialect="paper").with_letters("")
    assert choice.config.qk_dim == 256
    # 256, and 27 for the conditioner's 5 % of 4 D^2: the nearest multiple of 16.
    assert choice.config.fem_dim == 288


def test_unknown_letters_are_errors() -> None:
    with pytest.raises(ValueError, match='letters: expected one of "", "C", .*"LTG" .*, got "G"'):
        FreeEnergyMixerConfig(n_embd=64, n_head=4).with_letters("G")  # type: ignore[arg-type]
