"""Checkpoints of the authors' file. The golden files are such checkpoints: weights, an input and its output."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fem import FreeEnergyMixer, FreeEnergyMixerConfig, MixerState, load_reference
from fem.reference import ReferenceReport
from safetensors import safe_open
from safetensors.torch import save_file
from support import FLOAT64, error
from torch import Tensor

FOLDER = Path(__file__).parents[2] / "tests/golden"
NAMES = sorted(path.stem for path in FOLDER.glob("*.safetensors"))

ROTARY, QUERY, DECAY, STEP = "Rotary pairs", "q inside the logarithm", "Decay of gla", "Step and values of mamba"
CONDITIONER, PADDING = "Dead conditioner", "Padding counts"
FORMULAS = {ROTARY, QUERY, DECAY, STEP}


class Golden:
    def __init__(self, name: str) -> None:
        with safe_open(FOLDER / f"{name}.safetensors", "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}
            self.config = FreeEnergyMixerConfig(**json.loads(file.metadata()["config"]))
        self.weights: dict[str, Any] = {
            key.removeprefix("param."): value for key, value in tensors.items() if key.startswith("param.")
        }
        self.x, self.y = tensors["x"], tensors["y"]


def mixer_of(weights: dict[str, Tensor], config: FreeEnergyMixerConfig) -> FreeEnergyMixer:
    mixer = FreeEnergyMixer(config, dtype=torch.float64)
    mixer.load_state_dict(weights)
    return mixer


def effects(report: ReferenceReport) -> dict[str, float | None]:
    return {difference.title: difference.effect for difference in report.differences}


def relative(y: Tensor, other: Tensor) -> float:
    return ((y - other).norm() / y.norm()).item()


def refusal(weights: Any, config: FreeEnergyMixerConfig, **arguments: Any) -> str:
    with pytest.raises(ValueError) as caught:
        load_reference(weights, config, **arguments)
    return str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_output_and_measured_formulas(name: str) -> None:
    golden = Golden(name)
    mixer, report = load_reference(golden.weights, golden.config, golden.x)
    assert mixer.config == replace(golden.config, dialect="reference")
    assert error(mixer(golden.x), golden.y) < FLOAT64

    corrected = mixer_of(golden.weights, replace(golden.config, use_rope=golden.config.use_rope is not False))
    assert golden.config.dialect == "corrected"
    expected = relative(golden.y, corrected(golden.x).detach())
    shared = [effect for title, effect in effects(report).items() if title in FORMULAS]
    assert (expected > 1e-3) == bool(shared)  # a formula that differs moves the output by more than rounding
    assert shared == pytest.approx([expected] * len(shared), rel=FLOAT64)
    if golden.config.prior_type in ("rnn_softmax", "mamba"):
        assert report.printed.effect is None
    else:
        paper = mixer_of(golden.weights, replace(golden.config, dialect="paper"))
        assert report.printed.effect == pytest.approx(relative(golden.y, paper(golden.x).detach()), rel=FLOAT64)


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("softmax", [ROTARY, CONDITIONER, PADDING]),
        ("softmax_no_rope", [CONDITIONER, PADDING]),
        ("softmax_plain", [ROTARY, PADDING]),
        ("linear_encoder", [ROTARY, CONDITIONER, PADDING]),
        ("gla", [ROTARY, DECAY, CONDITIONER, PADDING]),
        ("rnn_softmax", [ROTARY, QUERY, CONDITIONER, PADDING]),
        ("rnn_softmax_mean_only", [ROTARY, CONDITIONER, PADDING]),
        ("mamba", [STEP, CONDITIONER, PADDING]),
    ],
)
def test_lists_what_applies(name: str, titles: list[str]) -> None:
    golden = Golden(name)
    _, report = load_reference(golden.weights, golden.config)
    assert [difference.title for difference in report.differences] == titles
    assert all(difference.reproduced == (difference.title in FORMULAS) for difference in report.differences)
    assert set(effects(report).values()) == {None}


def test_a_single_pair_turns_by_a_single_angle() -> None:
    config = FreeEnergyMixerConfig(n_embd=16, n_head=2, qk_dim=4)
    x = torch.randn(1, 9, 16, dtype=torch.float64)
    weights = {name: torch.randn_like(value) for name, value in FreeEnergyMixer(config).double().state_dict().items()}
    mixer, report = load_reference(weights, config)
    assert ROTARY not in effects(report)
    assert torch.equal(mixer(x), mixer_of(weights, config)(x))


@pytest.mark.parametrize("wrapper", [None, "state_dict", "model"])
def test_reads_torch_files(wrapper: str | None, tmp_path: Path) -> None:
    golden = Golden("gla")
    torch.save({wrapper: golden.weights, "step": 7} if wrapper else golden.weights, tmp_path / "weights.pt")
    mixer, _ = load_reference(tmp_path / "weights.pt", golden.config)
    assert error(mixer(golden.x), golden.y) < FLOAT64


def test_reads_safetensors(tmp_path: Path) -> None:
    golden = Golden("mamba")
    save_file(golden.weights, tmp_path / "weights.safetensors")
    mixer, _ = load_reference(str(tmp_path / "weights.safetensors"), golden.config)
    assert error(mixer(golden.x), golden.y) < FLOAT64


def test_prefix_selects_one_mixer_of_a_model() -> None:
    golden = Golden("softmax")
    model = {f"module.layers.{layer}.mixer.{name}": value for layer in (0, 1) for name, value in golden.weights.items()}
    model["module.embedding.weight"] = torch.zeros(3, 32)
    mixer, _ = load_reference(model, golden.config, prefix="module.layers.1.mixer.")
    assert error(mixer(golden.x), golden.y) < FLOAT64
    message = refusal(model, golden.config)
    assert 'prefix="module.layers.0.mixer.", prefix="module.layers.1.mixer."' in message


def test_keeps_dtype_and_owns_its_weights() -> None:
    golden = Golden("softmax")
    weights = {name: value.bfloat16() for name, value in golden.weights.items()}
    mixer, _ = load_reference(weights, replace(golden.config, dialect="reference"))
    assert {parameter.dtype for parameter in mixer.parameters()} == {torch.bfloat16}
    assert all(parameter.requires_grad for parameter in mixer.parameters())
    with torch.no_grad():
        mixer.get_parameter("W_v.weight").zero_()
    assert weights["W_v.weight"].count_nonzero() > 0


@pytest.mark.parametrize("name", ["softmax", "gla", "mamba"])
def test_lost_state_is_a_conditioner_that_adds_nothing(name: str) -> None:
    golden = Golden(name)
    golden.weights["tdc.fwd.ln.bias"] = torch.zeros(8).double()  # LayerNorm(0) is its bias: without one, silence
    x = torch.randn(2, 55, 32, dtype=torch.float64)
    mixer, report = load_reference(golden.weights, golden.config, x)

    silent_weights = {name: value for name, value in golden.weights.items() if not name.startswith("tdc.")}
    silent = mixer_of(silent_weights, replace(mixer.config, use_conv=False))
    state = MixerState()
    begin = mixer(x[:, :40], state=state)
    tensors = state.to_tensors()
    del tensors["conditioner"]
    lost = torch.cat([begin, silent(x[:, 40:], state=MixerState.from_tensors(tensors))], 1)
    expected = relative(mixer(x).detach(), lost)
    assert expected > 1e-3
    assert effects(report)[CONDITIONER] == pytest.approx(expected, rel=FLOAT64)


def test_nothing_is_lost_within_forty_tokens_or_without_a_trained_conditioner() -> None:
    golden = Golden("softmax")
    x = torch.randn(1, 50, 32, dtype=torch.float64)
    assert effects(load_reference(golden.weights, golden.config, x[:, :40])[1])[CONDITIONER] == 0
    golden.weights["tdc.fwd.out_proj"] = torch.zeros_like(golden.weights["tdc.fwd.out_proj"])
    assert effects(load_reference(golden.weights, golden.config, x)[1])[CONDITIONER] == 0


@pytest.mark.parametrize("name", ["softmax", "rnn_softmax", "linear_encoder"])
def test_padding_against_the_row_alone(name: str) -> None:
    golden = Golden(name)
    x = golden.x[:1]
    mask = torch.ones(1, x.shape[1], dtype=torch.long)
    mask[:, :6] = 0
    mixer, report = load_reference(golden.weights, golden.config, x, mask)
    padded = torch.cat([torch.zeros_like(x[:, :6]), x[:, 6:]], 1)
    expected = relative(mixer(x[:, 6:]).detach(), mixer(padded)[:, 6:].detach())
    assert expected > 1e-3
    assert effects(report)[PADDING] == pytest.approx(expected, rel=FLOAT64)


def test_no_difference_no_effect() -> None:
    golden = Golden("softmax_no_conv")
    config = replace(golden.config, use_rope=False)
    x = golden.x.float()  # a float32 input is measured in float64 as well
    _, report = load_reference(golden.weights, config, x, torch.ones(x.shape[:2], dtype=torch.bool))
    assert effects(report) == {PADDING: 0}
    assert 'the formulas of that file are those of dialect "corrected"' in str(report)
    assert report.printed.effect == 0
    assert "nothing differs from dialect" in str(report)


def test_right_padding_of_a_causal_mixer_moves_nothing() -> None:
    golden = Golden("softmax")
    mask = torch.ones(golden.x.shape[:2], dtype=torch.bool)
    mask[:, 12:] = False
    report = load_reference(golden.weights, golden.config, golden.x, mask)[1]
    assert effects(report)[PADDING] == pytest.approx(0, abs=1e-12)  # float64 rounding


def test_the_report_reads_well() -> None:
    golden = Golden("gla")
    x = torch.randn(1, 45, 32, dtype=torch.float64)
    text = str(load_reference(golden.weights, golden.config, x)[1])
    assert max(map(len, text.splitlines())) <= 100
    for words in (
        "c mod K/2",
        "-(relu(.) + eps)",
        "cumulative envelope",
        "tokens with score zero",
        "Measured together: ",
        "passes a SiLU and has no factor sqrt(H_c)",
    ):
        assert words in text
    assert "Not measured (that takes x and attention_mask)" in text
    encoder = Golden("softmax_encoder")
    _, report = load_reference(encoder.weights, encoder.config, encoder.x)
    assert effects(report)[CONDITIONER] is None
    assert "Not measured (that takes a causal mixer)" in str(report)


@pytest.mark.parametrize(
    ("name", "changes", "hint"),
    [
        ("softmax_no_gate", {"use_outer_gate": True}, "use_outer_gate=False"),
        ("softmax", {"use_outer_gate": False}, "use_outer_gate=True"),
        ("softmax_mean_only", {"use_lse": True}, "(use_lse or use_temperature)=False"),
        ("softmax_no_conv", {"use_conv": True}, "use_conv=False"),
        ("softmax", {"use_conv": False}, "use_conv=True"),
        ("softmax", {"conv_norm_first": False}, "conv_norm_first=True"),
        ("softmax", {"conv_hidden": 16}, "conv_hidden=8"),
        ("softmax_encoder", {"conv_bidirectional": True}, "conv_bidirectional=False"),
        ("softmax_no_bias", {"bias": True}, "bias=False"),
        ("softmax", {"fem_ratio": 1.0, "qk_dim": 32}, "fem_dim=16"),
        ("softmax_explicit_dims", {"qk_dim": 32}, "qk_dim=40"),
        ("softmax", {"n_embd": 64, "fem_dim": 16, "qk_dim": 32}, "n_embd=32"),
        ("gla", {"n_head": 2}, "n_head=4"),
        ("gla", {"prior_type": "softmax"}, 'prior_type="gla"'),
        ("softmax", {"prior_type": "mamba"}, 'prior_type="softmax", "linear" or "rnn_softmax"'),
        ("mamba", {"ssm_rank": 8}, "ssm_rank=4"),
    ],
)
def test_says_which_option_explains_a_misfit(name: str, changes: dict[str, Any], hint: str) -> None:
    golden = Golden(name)
    message = refusal(golden.weights, replace(golden.config, **changes))
    assert message.split(". The weights speak for ")[1].startswith(hint)


def test_lists_every_misfit() -> None:
    golden = Golden("softmax")
    del golden.weights["W_gate.bias"]
    golden.weights |= {"extra": torch.zeros(2), "W_o.bias": torch.zeros(3), "_beta_param": torch.zeros(16).long()}
    golden.weights["W_k.bias"] = [0.0]
    message = refusal(golden.weights, golden.config)
    for words in (
        "missing W_gate.bias [16]",
        "unexpected extra [2]",
        "W_o.bias: expected [32], got [3]",
        "_beta_param: expected a floating-point tensor, got torch.int64",
        "W_k.bias: expected a floating-point tensor, got list",
    ):
        assert words in message
    assert "speak for" not in message  # no option explains these


def test_refuses_what_is_no_checkpoint(tmp_path: Path) -> None:
    golden = Golden("softmax")
    text = tmp_path / "weights.pt"
    text.write_text("not a checkpoint")
    module = tmp_path / "module.pt"
    torch.save(FreeEnergyMixer(golden.config), module)
    for weights, words in [
        (tmp_path / "absent.pt", "absent.pt: cannot be read: No such file or directory"),
        (tmp_path / "absent.safetensors", "absent.safetensors: cannot be read"),
        (text, "weights.pt: expected a .safetensors file, or tensors written by torch.save"),
        (module, "torch.save(module.state_dict(), path)"),
        (FreeEnergyMixer(golden.config), "of a module pass module.state_dict()"),
        ({0: torch.zeros(2)}, "expected a state_dict (names and tensors), got dict"),
        ({}, "got no names"),
        ({"query.weight": torch.zeros(2)}, "got query.weight"),
    ]:
        assert words in refusal(weights, golden.config)
    assert 'no prior_type "rnn_decay"' in refusal({}, replace(golden.config, prior_type="rnn_decay"))
    mask = torch.ones(1, 4, dtype=torch.bool)
    assert "expected x as well" in refusal(golden.weights, golden.config, attention_mask=mask)
    assert "expected x" in refusal(golden.weights, golden.config, x=torch.zeros(1, 4, 31))
