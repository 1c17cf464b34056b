"""Streaming: states, caches, and what generation does to them."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from fem import Cache, FreeEnergyMixer, MixerState
from safetensors.torch import load_file, save_file
from support import FLOAT64, TOKENS, WIDTH, error, random_mixer
from support import tokens as float32_tokens
from torch import Tensor

# Ones, an uneven split, one with an empty call, and the whole.
SPLITS = ([1] * TOKENS, [5, 1, 6], [3, 0, 9], [TOKENS])


def tokens(batch: int = 2, length: int = TOKENS) -> Tensor:
    return float32_tokens(batch, length, torch.float64)


def exact_mixer(prior: str = "softmax", layer_idx: int | None = None, **fields: Any) -> FreeEnergyMixer:
    return random_mixer(prior, layer_idx=layer_idx, dtype=torch.float64, **fields).requires_grad_(False)


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_any_split_equals_the_whole(prior: str, dialect: str, split: list[int]) -> None:
    mixer, x, state = exact_mixer(prior, dialect=dialect), tokens(), MixerState()
    parts = [mixer(part, state=state) for part in x.split(split, dim=1)]
    assert error(torch.cat(parts, 1), mixer(x)) < FLOAT64
    assert state.tokens == TOKENS
    assert repr(state) == "MixerState(tokens=12)"


def test_a_split_of_padded_rows_equals_the_whole(prior: str, dialect: str) -> None:
    mixer, x, state = exact_mixer(prior, dialect=dialect), tokens(), MixerState()
    mask = torch.arange(TOKENS) >= torch.tensor([[4], [0]])
    whole = mixer(x, mask)
    parts = [mixer(x[:, :7], mask[:, :7], state=state), mixer(x[:, 7:], state=state)]
    assert error(torch.cat(parts, 1)[mask], whole[mask]) < FLOAT64


def test_a_window_streams() -> None:
    mixer, x, state = exact_mixer(window=3), tokens(), MixerState()
    assert error(torch.cat([mixer(t, state=state) for t in x.split(1, 1)], 1), mixer(x)) < FLOAT64


def continue_from(mixer: FreeEnergyMixer, x: Tensor, state: MixerState) -> Tensor:
    return torch.cat([mixer(t, state=state) for t in x.split(2, 1)], 1)


@pytest.mark.parametrize(
    "way",
    [
        lambda state: state.snapshot(),
        lambda state: state.clone(),
        copy.copy,
        copy.deepcopy,
        lambda state: pickle.loads(pickle.dumps(state)),
        lambda state: MixerState.from_tensors(state.to_tensors()),
    ],
    ids=["snapshot", "clone", "copy", "deepcopy", "pickle", "tensors"],
)
def test_a_copy_and_its_original_part_ways(prior: str, dialect: str, way: Any) -> None:
    mixer, x, other, state = exact_mixer(prior, dialect=dialect), tokens(), tokens(), MixerState()
    mixer(x[:, :6], state=state)
    duplicate = way(state)
    changed = continue_from(mixer, other[:, 6:], state)
    assert duplicate.tokens == 6 and state.tokens == TOKENS
    assert error(continue_from(mixer, x[:, 6:], duplicate), mixer(x)[:, 6:]) < FLOAT64
    assert error(changed, mixer(torch.cat([x[:, :6], other[:, 6:]], 1))[:, 6:]) < FLOAT64


def test_rollback(prior: str, dialect: str) -> None:
    mixer, x, state = exact_mixer(prior, dialect=dialect), tokens(), MixerState()
    mixer(x[:, :5], state=state)
    snapshot = state.snapshot()
    mixer(tokens(2, 4), state=state)  # a draft that was refused
    state.rollback(snapshot)
    assert state.tokens == 5
    assert error(mixer(x[:, 5:], state=state), mixer(x)[:, 5:]) < FLOAT64


def test_select_reorders_repeats_and_drops_rows(prior: str, dialect: str) -> None:
    mixer, x, state = exact_mixer(prior, dialect=dialect), tokens(3), MixerState()
    mixer(x[:, :5], state=state)
    rows = torch.tensor([2, 0, 2, 2])
    assert error(mixer(x[rows, 5:], state=state.select(rows)), mixer(x)[rows, 5:]) < FLOAT64


def test_tensors_go_through_a_file(prior: str, dialect: str, tmp_path: Path) -> None:
    mixer, x, state = exact_mixer(prior, dialect=dialect), tokens(), MixerState()
    mask = torch.arange(5) >= torch.tensor([[2], [0]])
    mixer(x[:, :5], mask, state=state)
    save_file(state.to_tensors(), tmp_path / "state.safetensors")
    restored = MixerState.from_tensors(load_file(tmp_path / "state.safetensors"))
    assert torch.equal(mixer(x[:, 5:], state=restored), mixer(x[:, 5:], state=state))


def test_from_tensors_refuses_what_to_tensors_did_not_write() -> None:
    with pytest.raises(ValueError, match='expected an entry "tokens"'):
        MixerState.from_tensors({})
    with pytest.raises(ValueError, match='unknown entry "keys"'):
        MixerState.from_tensors({"tokens": torch.tensor(1), "keys": torch.ones(1)})
    with pytest.raises(ValueError, match="expected tokens of at least 0, got -5"):
        MixerState.from_tensors({"tokens": torch.tensor(-5)})


def test_a_state_says_what_it_cannot_do() -> None:
    mixer, state = exact_mixer(), MixerState()
    mixer(tokens(), state=state)
    with pytest.raises(ValueError, match="expected x with the state's batch size 2, got .*; start from a new state"):
        mixer(tokens(3), state=state)
    with pytest.raises(ValueError, match="a state carries no gradients, but x requires them"):
        mixer(tokens().requires_grad_(), state=state)
    with pytest.raises(ValueError, match="a state cannot continue packed sequences"):
        mixer(tokens(1), state=MixerState(), cu_seqlens=torch.tensor([0, TOKENS]))
    with pytest.raises(ValueError, match="a state needs causal=true"):
        exact_mixer(causal=False)(tokens(), state=MixerState())
    assert state.tokens == TOKENS


# Another layer, and what it says.
STRANGERS = [
    ({"prior_type": "linear"}, r"a state of the layer \(linear, corrected, rope 10000\), got one of the layer \(gla, "),
    ({"dialect": "reference"}, r"the layer \(gla, reference, rope 10000\), got one of the layer \(gla, corrected, "),
    ({"use_rope": False}, r"the layer \(gla, corrected, no rope\), got one of"),
    ({"rope_theta": 500.0}, r"the layer \(gla, corrected, rope 500\), got one of"),
    ({"use_conv": False}, "this layer has no conditioner, but the state holds one's h"),
    ({"conv_hidden": 4}, r"expected the state's conditioner as Double \[2, 4\] on cpu, got Double \[2, 8\] on cpu"),
    ({"n_head": 2}, r"expected the state's sums as Double \[2, 2, 16, 17\] on cpu, got Double \[2, 4, 8, 9\] on cpu"),
    ({"use_lse": False, "use_temperature": False}, r"expected the state's sums as Double \[2, 4, 8, 5\] on cpu"),
]


@pytest.mark.parametrize("fields, sentence", STRANGERS, ids=[",".join(fields) for fields, _ in STRANGERS])
def test_a_cache_belongs_to_its_layers(fields: dict[str, Any], sentence: str) -> None:
    x, mixer = tokens(), exact_mixer("gla", 0)
    stranger = exact_mixer(
        **{"prior": "gla", "layer_idx": 0} | {k.replace("prior_type", "prior"): v for k, v in fields.items()}
    )
    _, _, cache = mixer(x[:, :5], use_cache=True)
    with pytest.raises(ValueError, match=sentence + ".*; a state belongs to the layer that began it"):
        stranger(x[:, 5:], past_key_values=cache)
    assert error(mixer(x[:, 5:], past_key_values=cache)[0], mixer(x)[:, 5:]) < FLOAT64


def test_a_state_that_lost_something_is_refused(prior: str) -> None:
    mixer, x, state = exact_mixer(prior), tokens(), MixerState()
    mixer(x[:, :5], state=state)
    memory = "key" if prior == "softmax" else "sums"
    for name, sentence in (
        ("conditioner", "expected the state to hold conditioner of the 5 tokens it has seen, got none"),
        (
            f"{'cache' if prior == 'softmax' else 'accumulator'}.{memory}",
            f"expected the state to hold {memory} of the 5",
        ),
        ("layer", "got one of no layer"),
    ):
        damaged = MixerState.from_tensors({n: t for n, t in state.to_tensors().items() if n != name})
        with pytest.raises(ValueError, match=sentence):
            mixer(x[:, 5:], state=damaged)
    wide = MixerState.from_tensors(state.to_tensors())
    with pytest.raises(ValueError, match="expected the state's conditioner as Float"):
        random_mixer(prior, dtype=torch.float32).requires_grad_(False)(x[:, 5:].float(), state=wide)


def two_layers(prior: str, dialect: str = "corrected") -> list[FreeEnergyMixer]:
    return [exact_mixer(prior, layer_idx, dialect=dialect) for layer_idx in range(2)]


def run(layers: list[FreeEnergyMixer], x: Tensor, cache: Any, mask: Tensor | None = None) -> Tensor:
    for layer in layers:
        x, weights, returned = layer(x, attention_mask=mask, past_key_values=cache, use_cache=True)
        assert weights is None and returned is cache
    return x


def run_whole(layers: list[FreeEnergyMixer], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def test_use_cache_begins_a_cache() -> None:
    mixer, x = exact_mixer(layer_idx=0), tokens()
    y, weights, cache = mixer(x[:, :5], use_cache=True)
    assert isinstance(cache, Cache) and weights is None and cache.get_seq_length() == 5
    rest, _, same = mixer(x[:, 5:], past_key_values=cache)
    assert same is cache and len(cache) == 1 and repr(cache) == "Cache(layers=1, tokens=12)"
    assert error(torch.cat([y, rest], 1), mixer(x)) < FLOAT64


def test_a_cache_keeps_layers_apart(prior: str, dialect: str) -> None:
    layers, x, cache = two_layers(prior, dialect), tokens(), Cache()
    parts = [run(layers, part, cache) for part in x.split([6, 1, 5], dim=1)]
    assert error(torch.cat(parts, 1), run_whole(layers, x)) < FLOAT64
    assert len(cache) == 2 and cache.get_seq_length(1) == TOKENS and cache.get_seq_length(7) == 0
    assert [state.tokens for state in cache] == [TOKENS, TOKENS]


def test_reorder_cache(prior: str, dialect: str) -> None:
    layers, x, cache = two_layers(prior, dialect), tokens(), Cache()
    run(layers, x[:, :6], cache)
    cache.reorder_cache(torch.tensor([1, 0]))
    assert error(run(layers, x[[1, 0], 6:], cache), run_whole(layers, x)[[1, 0], 6:]) < FLOAT64


def test_a_cache_is_copied_with_its_states() -> None:
    layers, x, cache = two_layers("gla"), tokens(), Cache()
    run(layers, x[:, :6], cache)
    for duplicate in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
        assert error(run(layers, x[:, 6:], duplicate), run_whole(layers, x)[:, 6:]) < FLOAT64
    assert cache.get_seq_length() == 6


def test_the_mask_may_cover_the_past() -> None:
    mixer, x = exact_mixer(layer_idx=0), tokens()
    mask = torch.arange(TOKENS) >= torch.tensor([[4], [0]])
    y, _, cache = mixer(x[:, :7], mask[:, :7], use_cache=True)
    outputs = [y] + [mixer(x[:, t : t + 1], mask[:, : t + 1], past_key_values=cache)[0] for t in range(7, TOKENS)]
    assert error(torch.cat(outputs, 1)[mask], mixer(x, mask)[mask]) < FLOAT64
    with pytest.raises(ValueError, match=r"expected mask as bool \[B=2, T=12\]"):
        mixer(x, mask[:, 1:], use_cache=True)


class ForeignCache:
    """Keeps keys and values: the protocol of transformers, which has no place for a state."""

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        raise AssertionError


def test_a_cache_asks_for_what_it_needs() -> None:
    mixer, x = exact_mixer(layer_idx=0), tokens()
    with pytest.raises(ValueError, match="build the layer with layer_idx"):
        exact_mixer()(x, use_cache=True)
    with pytest.raises(ValueError, match="expected state or past_key_values .*, got both"):
        mixer(x, use_cache=True, state=MixerState())
    for wrong in (ForeignCache(), ((x, x),), {}):
        with pytest.raises(ValueError, match=f"past_key_values as fem.Cache .*, got {type(wrong).__name__}"):
            mixer(x, past_key_values=wrong)


class LinearAttentionCache:
    """The protocol of flash-linear-attention 0.6.0 (`fla.models.utils.Cache`) as its layers use it: a layer finds its
    entry by index, absent or None before its first update, and hands back what it wants to find there next time."""

    def __init__(self) -> None:
        self.layers: list[dict[str, Any] | None] = []
        self.seen: list[int] = []

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, layer_idx: int) -> dict[str, Any] | None:
        if layer_idx >= len(self.layers):
            raise KeyError(f"Cache only has {len(self)} layers")
        return self.layers[layer_idx]

    def update(
        self,
        recurrent_state: Any = None,
        attn_state: Any = None,
        conv_state: Any = None,
        ffn_state: Any = None,
        layer_idx: int = 0,
        offset: int | None = 1,
        cache_kwargs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        while len(self.layers) <= layer_idx:
            self.layers.append(None)
            self.seen.append(0)
        entry = self.layers[layer_idx] or dict.fromkeys(("recurrent_state", "attn_state", "conv_state", "ffn_state"))
        if recurrent_state is not None:
            entry["recurrent_state"] = recurrent_state
        self.layers[layer_idx] = entry
        self.seen[layer_idx] += 1 if offset is None else offset
        return entry


def test_a_place_of_another_kind_of_layer_is_refused() -> None:
    mixer, x, cache = exact_mixer(layer_idx=0), tokens(), LinearAttentionCache()
    cache.update(recurrent_state=torch.ones(2, 4, 8, 8), layer_idx=0)
    with pytest.raises(ValueError, match="expected a fem.MixerState in place 0 of past_key_values, got a Tensor"):
        mixer(x, past_key_values=cache)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_flash_linear_attention_cache(prior: str, dialect: str, order: tuple[int, int]) -> None:
    layers, x, cache = two_layers(prior, dialect), tokens(), LinearAttentionCache()
    layers = [layers[i] for i in order]
    parts = [run(layers, part, cache) for part in x.split([6, 1, 5], dim=1)]
    assert error(torch.cat(parts, 1), run_whole(layers, x)) < FLOAT64
    assert cache.seen == [TOKENS, TOKENS]


def test_float32_and_bfloat16_stream() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        mixer = random_mixer(dtype=dtype).requires_grad_(False)
        state = MixerState()
        y = mixer(torch.randn(2, 5, WIDTH, dtype=dtype), state=state)
        assert y.dtype == dtype
        assert {t.dtype for n, t in state.to_tensors().items() if n.startswith("cache.")} == {dtype}
