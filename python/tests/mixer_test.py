"""The layer as an nn.Module: shapes, dtypes, masks, packing, and what callers do to modules."""

import copy
import io
import pickle
import statistics
from typing import Any

import pytest
import torch
from fem import FreeEnergyMixer, FreeEnergyMixerConfig
from support import (
    FLOAT32_GRADIENT,
    FLOAT32_LAYER,
    FLOAT64,
    TIMES_PLAIN,
    TIMES_PLAIN_GRADIENT,
    TOKENS,
    WIDTH,
    error,
    gradient_error,
    gradients,
    plain_gradients,
    random_mixer,
    small_config,
    times_plain,
    tokens,
)
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils import parametrizations

# Row 0 padded on the left, row 1 not, row 2 on the right: [begin, end) of the real tokens.
REAL = ((3, 12), (0, 12), (0, 7))


def padding_mask() -> Tensor:
    mask = torch.zeros(3, TOKENS, dtype=torch.bool)
    for row, (begin, end) in enumerate(REAL):
        mask[row, begin:end] = True
    return mask


@pytest.mark.parametrize("causal", [True, False])
def test_float32_agrees_with_float64(prior: str, causal: bool) -> None:
    mixer, x = random_mixer(prior, causal=causal), tokens()
    y, gradient = gradients(mixer, x)
    assert y.shape == x.shape and y.dtype == torch.float32
    assert {g.dtype for g in gradient.values()} == {torch.float32}
    exact_y, exact = gradients(copy.deepcopy(mixer).double(), x.double())
    assert error(y, exact_y) < FLOAT32_LAYER
    assert gradient_error(gradient, exact) < FLOAT32_GRADIENT


@pytest.mark.parametrize("causal", [True, False])
def test_bfloat16_is_about_as_exact_as_the_definitions_in_bfloat16(prior: str, causal: bool) -> None:
    ratios: dict[str, list[float]] = {}
    for _ in range(9):  # the median: where relu all but closes a head's features, any rounding is amplified
        mixer, x = random_mixer(prior, causal=causal).bfloat16(), tokens(2, 40, torch.bfloat16)
        y, gradient = gradients(mixer, x)
        assert y.shape == x.shape and {g.dtype for g in [y, *gradient.values()]} == {torch.bfloat16}
        plain_y, plain = plain_gradients(mixer, x)
        exact_y, exact = gradients(copy.deepcopy(mixer).double(), x.double())
        for name, value in {"y": exact_y, **exact}.items():
            ratio = times_plain({"y": y, **gradient}[name], {"y": plain_y, **plain}[name], value)
            ratios.setdefault(name, []).append(ratio)
    for name, values in ratios.items():
        assert statistics.median(values) < (TIMES_PLAIN if name == "y" else TIMES_PLAIN_GRADIENT), name


@pytest.mark.parametrize("shape", [(1, 1, WIDTH), (3, 1, WIDTH), (0, 5, WIDTH), (2, 0, WIDTH)])
def test_awkward_shapes(prior: str, dialect: str, shape: tuple[int, ...]) -> None:
    y, gradient = gradients(random_mixer(prior, dialect=dialect), torch.randn(shape))
    assert y.shape == shape
    assert all(g.isfinite().all() for g in gradient.values())


def test_strided_input() -> None:
    mixer, x = random_mixer(), torch.randn(TOKENS, 2, 2 * WIDTH)
    strided = x.transpose(0, 1)[..., ::2]
    assert torch.equal(mixer(strided), mixer(strided.contiguous()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden_states": torch.ones(2, WIDTH)}, r"expected x of shape \[B, T, D=32\], got \[2, 32\]"),
        ({"hidden_states": torch.ones(2, 5, 31)}, r"expected x of shape \[B, T, D=32\], got \[2, 5, 31\]"),
        ({"hidden_states": torch.ones(2, 5, WIDTH).double()}, "expected x as Float .*, got Double .*; convert either"),
        ({"attention_mask": torch.ones(2, 5)}, r"expected attention_mask as bool or integer .* pass \(mask == 0\)"),
        ({"attention_mask": torch.ones(2, 4).bool()}, r"expected mask as bool \[B=2, T=5\] .*, got Bool \[2, 4\]"),
        ({"attention_mask": torch.ones(2, 1, 5, 5).bool()}, r"expected mask as bool \[B=2, T=5\] .* \[2, 1, 5, 5\]"),
        ({"cu_seqlens": torch.tensor([0, 5])}, r"expected x of shape \[1, T, D\], got \[2, 5, 32\]"),
        (
            {"hidden_states": torch.ones(1, 5, WIDTH), "cu_seqlens": torch.tensor([0.0, 5.0])},
            "expected cu_seqlens as int32 or int64",
        ),
        ({"output_attentions": True}, "output_attentions is not available"),
    ],
)
def test_wrong_arguments_say_what_was_expected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        random_mixer()(**{"hidden_states": torch.ones(2, 5, WIDTH), **arguments})


def test_authors_call() -> None:
    mixer, x, mask = random_mixer(), tokens(3), padding_mask()
    assert torch.equal(mixer(x, attention_mask=None), mixer(x))
    assert torch.equal(mixer(x, attention_mask=mask), mixer(x, mask))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_integer_masks_mean_what_boolean_ones_mean(dtype: torch.dtype) -> None:
    mixer, x, mask = random_mixer(), tokens(3), padding_mask()
    assert torch.equal(mixer(x, mask.to(dtype)), mixer(x, mask))


@pytest.mark.parametrize("causal", [True, False])
def test_padding_changes_no_real_token(prior: str, dialect: str, causal: bool) -> None:
    mixer = random_mixer(prior, dialect=dialect, causal=causal, dtype=torch.float64)
    x = tokens(3, dtype=torch.float64)
    y = mixer(x, padding_mask())
    for row, (begin, end) in enumerate(REAL):
        assert error(y[row, begin:end], mixer(x[row : row + 1, begin:end])[0]) < FLOAT64


def test_padding_gets_no_gradient(prior: str, dialect: str) -> None:
    x = tokens(3).requires_grad_()
    random_mixer(prior, dialect=dialect)(x, padding_mask())[padding_mask()].square().sum().backward()
    assert x.grad is not None
    assert x.grad[~padding_mask()].count_nonzero() == 0
    assert x.grad[padding_mask()].count_nonzero() > 0


@pytest.mark.parametrize("causal", [True, False])
def test_packed_equals_separate(prior: str, dialect: str, causal: bool) -> None:
    mixer = random_mixer(prior, dialect=dialect, causal=causal, dtype=torch.float64)
    x = tokens(1, dtype=torch.float64)
    borders = [0, 5, 6, TOKENS]
    packed = mixer(x, cu_seqlens=torch.tensor(borders))
    separate = [mixer(x[:, begin:end]) for begin, end in zip(borders, borders[1:], strict=False)]
    assert error(packed, torch.cat(separate, 1)) < FLOAT64


def test_causal_tokens_see_no_later_token(prior: str, dialect: str) -> None:
    mixer, x = random_mixer(prior, dialect=dialect), tokens()
    changed = x.clone()
    changed[:, 8:] += 1
    causal, later = mixer(x), mixer(changed)
    assert error(later[:, :8], causal[:, :8]) < FLOAT32_LAYER
    assert error(later[:, 8:], causal[:, 8:]) > 0.01


def test_window() -> None:
    mixer, x = random_mixer(window=3, use_conv=False), tokens()
    changed = x.clone()
    changed[:, 0] += 1
    assert torch.equal(mixer(changed)[:, 3:], mixer(x)[:, 3:])
    assert not torch.equal(mixer(changed)[:, 2], mixer(x)[:, 2])


def test_dropout_acts_in_training_alone() -> None:
    x = tokens()
    mixer = random_mixer(dropout=0.5)
    without = random_mixer(dropout=0.0)
    without.load_state_dict(mixer.state_dict())
    assert torch.equal(mixer.eval()(x), without(x))
    assert not torch.equal(mixer.train()(x), without(x))
    torch.manual_seed(1)
    first = mixer(x)
    torch.manual_seed(1)
    assert torch.equal(mixer(x), first)
    # The mean over many drops is the output without; 400 draws leave about 1/20 of an element's spread.
    mean = torch.stack([mixer(x) for _ in range(400)]).mean(0)
    assert error(mean, without(x)) < 0.2


def test_initial_values(prior: str, dialect: str) -> None:
    torch.manual_seed(3)
    mixer = FreeEnergyMixer(small_config(prior, dialect=dialect))
    assert torch.equal(mixer._beta_param, torch.full((WIDTH // 2,), 1.8))
    weight = mixer.get_parameter("W_v.weight")
    assert 0.015 < weight.std().item() < 0.025  # N(0, 0.02), 512 draws
    assert (mixer.get_parameter("tdc.fwd.out_proj").count_nonzero() > 0) == (dialect == "paper")
    initial = {n: p.clone() for n, p in mixer.state_dict().items()}
    mixer.reset_parameters()
    assert not torch.equal(weight, initial["W_v.weight"])
    torch.manual_seed(3)
    mixer.reset_parameters()
    assert all(torch.equal(p, initial[n]) for n, p in mixer.state_dict().items())


def test_parameters_are_where_their_names_say() -> None:
    mixer = random_mixer("gla", bias=False)
    assert {n for n, _ in mixer.named_parameters()} == set(mixer.state_dict())
    assert mixer.W_decay.weight.shape == (4, WIDTH)
    assert not any(name.endswith("bias") for name in mixer.state_dict())


def test_repr_names_options_and_shapes() -> None:
    text = repr(FreeEnergyMixer(small_config("gla", dropout=0.25)))
    assert "n_embd=32, n_head=4, prior_type='gla', dropout=0.25, conv_hidden=8, ssm_rank=4" in text
    assert "(W_v): Linear(in_features=32, out_features=16, bias=True)" in text
    assert "(fwd): ParameterGroup(" in text and "out_proj=(8, " in text


def copied(mixer: FreeEnergyMixer) -> FreeEnergyMixer:
    return copy.deepcopy(mixer)


def pickled(mixer: FreeEnergyMixer) -> FreeEnergyMixer:
    return pickle.loads(pickle.dumps(mixer))


def saved_whole(mixer: FreeEnergyMixer) -> FreeEnergyMixer:
    buffer = io.BytesIO()
    torch.save(mixer, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def saved_state_dict(mixer: FreeEnergyMixer) -> FreeEnergyMixer:
    buffer = io.BytesIO()
    torch.save(mixer.state_dict(), buffer)
    buffer.seek(0)
    fresh = FreeEnergyMixer(mixer.config, mixer.layer_idx)
    fresh.load_state_dict(torch.load(buffer, weights_only=True), strict=True)
    return fresh


def made_on_meta(mixer: FreeEnergyMixer) -> FreeEnergyMixer:
    fresh = FreeEnergyMixer(mixer.config, mixer.layer_idx, device="meta")
    assert all(p.is_meta for p in fresh.parameters())
    assert fresh(torch.empty(2, 5, WIDTH, device="meta")).shape == (2, 5, WIDTH)
    fresh = fresh.to_empty(device="cpu")
    fresh.load_state_dict(mixer.state_dict())
    return fresh


@pytest.mark.parametrize("way", [copied, pickled, saved_whole, saved_state_dict, made_on_meta])
def test_a_copy_computes_the_same_and_is_another(prior: str, dialect: str, way: Any) -> None:
    mixer, x = random_mixer(prior, dialect=dialect, layer_idx=2), tokens()
    y = mixer(x)
    copy_of = way(mixer)
    assert copy_of.config == mixer.config and copy_of.layer_idx == 2
    assert torch.equal(copy_of(x), y)
    with torch.no_grad():
        copy_of.get_parameter("W_o.weight").zero_()
    assert torch.equal(mixer(x), y)


def test_to_empty_then_reset_starts_as_a_new_one() -> None:
    torch.manual_seed(5)
    new = FreeEnergyMixer(small_config("mamba"))
    late = FreeEnergyMixer(small_config("mamba"), device="meta").to_empty(device="cpu")
    torch.manual_seed(5)
    late.reset_parameters()
    assert all(torch.equal(p, new.state_dict()[n]) for n, p in late.state_dict().items())


def test_load_state_dict_is_strict() -> None:
    mixer = random_mixer()
    weights = dict(mixer.state_dict())
    weights["W_typo.weight"] = weights.pop("W_q.weight")
    with pytest.raises(RuntimeError, match="W_q.weight"):
        mixer.load_state_dict(weights)


def test_functional_call_exchanges_the_parameters() -> None:
    mixer, other, x = random_mixer(), random_mixer(), tokens()
    assert torch.equal(functional_call(mixer, dict(other.named_parameters()), (x,)), other(x))
    assert not torch.equal(mixer(x), other(x))


def test_parametrizations_act() -> None:
    mixer, x = random_mixer(), tokens()
    plain = mixer(x)
    parametrizations.weight_norm(mixer.W_v)
    assert error(mixer(x), plain) < FLOAT32_LAYER
    magnitude = mixer.W_v.parametrizations.weight.original0
    with torch.no_grad():
        magnitude.mul_(2)
    assert error(mixer(x), plain) > 0.1
    mixer(x).sum().backward()
    assert magnitude.grad.count_nonzero() > 0


def test_frozen_parameters_stay_without_gradient() -> None:
    mixer = random_mixer().requires_grad_(False)
    mixer.W_o.requires_grad_(True)
    mixer(tokens()).sum().backward()
    assert {n for n, p in mixer.named_parameters() if p.grad is not None} == {"W_o.weight", "W_o.bias"}


def test_operators_check_the_list_of_parameters(tmp_path):
    mixer = FreeEnergyMixer(FreeEnergyMixerConfig(n_embd=16, n_head=2))
    parameters, config = mixer._weights(), mixer._json
    x = torch.randn(1, 3, 16)
    for call in (
        lambda p: torch.ops.fem.mix(x, p, config),
        lambda p: torch.ops.fem.initialize_mixer(p, config),
        lambda p: torch.ops.fem.save_mixer(str(tmp_path / "mixer.safetensors"), p, config),
    ):
        with pytest.raises(ValueError, match="got no more"):
            call(parameters[:-1])
        with pytest.raises(ValueError, match="W_v.weight of shape"):
            call(parameters[::-1])
    assert not list(tmp_path.iterdir())
