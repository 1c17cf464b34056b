"""Language models: what they compute, remember, write and score."""

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from fem import ByteTokenizer, FreeEnergyMixer, LanguageModel, LanguageModelConfig, LanguageModelState, MixerState
from safetensors.torch import load_file, save_file
from small_models import BY_HAND, KINDS, model_config, random_model
from support import FLOAT32_LAYER, error
from torch import Tensor
from torch.nn import functional

# Two blocks and a head on top of the layer.
CLOSE = 2 * FLOAT32_LAYER


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Every prior, and plain attention."""
    return str(request.param)


def some_tokens(batch: int = 2, length: int = 12) -> Tensor:
    return torch.randint(257, (batch, length))


def attention_by_hand(model: LanguageModel, block: int, x: Tensor) -> Tensor:
    weights = {n.removeprefix(f"blocks.{block}.mixer."): p for n, p in model.named_parameters()}
    query, key, value = (
        functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"]).unflatten(-1, (4, 8)).transpose(1, 2)
        for name in ("query", "key", "value")
    )
    angle = torch.arange(x.shape[1])[:, None] * 10000.0 ** (-torch.arange(4) / 4)
    turn = torch.polar(torch.ones_like(angle), angle)

    def turned(y: Tensor) -> Tensor:
        return torch.view_as_real(torch.view_as_complex(y.unflatten(-1, (4, 2)).contiguous()) * turn).flatten(-2)

    read = functional.scaled_dot_product_attention(turned(query), turned(key), value, is_causal=True)
    return functional.linear(read.transpose(1, 2).flatten(2), weights["output.weight"], weights["output.bias"])


def mixer_of(model: LanguageModel, block: int) -> FreeEnergyMixer:
    mixer, prefix = FreeEnergyMixer(model.config.mixer_config()), f"blocks.{block}.mixer."
    mixer.load_state_dict({n.removeprefix(prefix): p for n, p in model.state_dict().items() if n.startswith(prefix)})
    return mixer


@pytest.mark.parametrize("kind", BY_HAND)
@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_those_of_the_formulas(kind: str, tied: bool) -> None:
    model, tokens = random_model(kind, tie_embeddings=tied, norm_eps=0.1), some_tokens()
    w = dict(model.named_parameters())

    def normed(x: Tensor, name: str) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 0.1).sqrt() * w[name]

    x = w["embedding.weight"][tokens]
    for i in range(model.config.n_layer):
        u = normed(x, f"blocks.{i}.mixer_norm.weight")
        x = x + (attention_by_hand(model, i, u) if kind == "attention" else mixer_of(model, i)(u))
        u = normed(x, f"blocks.{i}.mlp_norm.weight")
        gate, up, down = (w[f"blocks.{i}.mlp.{name}.weight"] for name in ("gate", "up", "down"))
        x = x + (functional.silu(u @ gate.T) * (u @ up.T)) @ down.T
    assert ("head.weight" in w) != tied
    expected = normed(x, "norm.weight") @ w["embedding.weight" if tied else "head.weight"].T
    assert error(model(tokens), expected) < CLOSE


def test_every_parameter_learns(kind: str) -> None:
    model = random_model(kind)
    functional.cross_entropy(model(some_tokens()).flatten(0, 1), some_tokens().flatten()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_documents_of_a_row_do_not_see_each_other(kind: str) -> None:
    model, tokens = random_model(kind), some_tokens(1, 20)
    packed = model(tokens, cu_seqlens=torch.tensor([0, 7, 7, 8, 20], dtype=torch.int32))
    for begin, end in ((0, 7), (7, 8), (8, 20)):
        assert error(packed[:, begin:end], model(tokens[:, begin:end])) < CLOSE


@pytest.mark.parametrize("left", [True, False])
def test_padding_changes_no_real_token(kind: str, left: bool) -> None:
    model, tokens = random_model(kind), some_tokens(2, 10)
    place = torch.arange(10)
    mask = torch.stack([place >= 0, place >= 4 if left else place < 6])
    row = tokens[1:, mask[1]]
    assert error(model(tokens, mask=mask)[1:, mask[1]], model(row)) < CLOSE
    assert error(model(tokens, mask=mask.long())[:1], model(tokens[:1])) < CLOSE


def test_any_split_of_a_text_gives_the_same(kind: str) -> None:
    model, tokens = random_model(kind), some_tokens(3, 12)
    state = LanguageModelState()
    mask = torch.arange(12) >= torch.tensor([[0], [2], [7]])
    parts = [model(t, mask=m, state=state) for t, m in zip(tokens.split([5, 4, 3], 1), mask.split([5, 4, 3], 1))]
    assert error(torch.cat(parts, 1)[mask], model(tokens, mask=mask)[mask]) < CLOSE
    assert state.tokens == 12 and not parts[0].requires_grad

    before = state.snapshot()
    more = some_tokens(3, 1)
    expected = model(more, state=state)
    swapped = before.select(torch.tensor([2, 0]))
    assert error(model(more[[2, 0]], state=swapped), expected[[2, 0]]) < CLOSE
    assert (before.tokens, state.tokens, swapped.tokens) == (12, 13, 13)


def in_cpp(folder: Path, inputs: dict[str, Tensor]) -> Tensor:
    program = os.environ.get("FEM_RUN_LANGUAGE_MODEL")
    assert program, "set FEM_RUN_LANGUAGE_MODEL to the C++ build's tests/run_language_model to compare with it"
    save_file(inputs, folder / "in.safetensors")
    command = [program, folder, folder / "in.safetensors", folder / "out.safetensors"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return load_file(folder / "out.safetensors")["logits"]


def test_cpp_computes_the_same(kind: str, tmp_path: Path) -> None:
    model = random_model(kind, tie_embeddings=kind in ("softmax", "attention"))
    model.save_pretrained(tmp_path)
    row, borders = some_tokens(1, 70), torch.tensor([0, 3, 40, 70], dtype=torch.int32)
    assert torch.equal(model(row, borders), in_cpp(tmp_path, {"tokens": row, "cu_seqlens": borders}))


@pytest.mark.parametrize(
    ("rule", "own"),
    [("gain", "rate"), ("momentum", "decay"), ("nesterov", "look_ahead"), ("nesterov_query", "look_ahead")],
)
def test_a_residual_rule_is_the_same_in_cpp(rule: str, own: str, tmp_path: Path) -> None:
    model, tokens = random_model(residual=rule), some_tokens(2, 20)
    assert f"blocks.1.residual.{own}" in model.state_dict()
    model.save_pretrained(tmp_path)
    assert torch.equal(model(tokens), in_cpp(tmp_path, {"tokens": tokens}))
    plain = random_model()
    plain.load_state_dict(model.state_dict(), strict=False)
    assert error(model(tokens), plain(tokens)) > 1e-3


def test_a_gelu_mlp_is_the_same_in_cpp(tmp_path: Path) -> None:
    model, tokens = random_model(mlp="gelu"), some_tokens(2, 20)
    assert "blocks.0.mlp.gate.weight" not in model.state_dict()
    model.save_pretrained(tmp_path)
    assert torch.equal(model(tokens), in_cpp(tmp_path, {"tokens": tokens}))


@pytest.mark.parametrize("kind", ["gla", "attention"])
def test_cpp_computes_the_same_of_a_batch(kind: str, tmp_path: Path) -> None:
    model, tokens = random_model(kind), some_tokens(2, 70)
    model.save_pretrained(tmp_path)
    assert torch.equal(model(tokens), in_cpp(tmp_path, {"tokens": tokens}))


def test_a_folder_brings_the_model_back(kind: str, tmp_path: Path) -> None:
    model, tokens = random_model(kind, tie_embeddings=False).to(torch.bfloat16), some_tokens()
    model.save_pretrained(tmp_path / "new" / "model")
    again = LanguageModel.from_pretrained(tmp_path / "new" / "model")
    assert again.config == model.config and isinstance(again.tokenizer, ByteTokenizer) and not again.training
    assert torch.equal(again(tokens), model(tokens))
    assert all(parameter.requires_grad for parameter in again.parameters())
    files = {path.name for path in (tmp_path / "new" / "model").iterdir()}
    assert files == {"config.json", "model.safetensors", "tokenizer.json"}


def test_a_run_gives_its_newest_checkpoint(tmp_path: Path) -> None:
    for step in (90, 100, 20):
        random_model(n_layer=step // 10).save_pretrained(tmp_path / f"checkpoints/step-{step:08}")
    assert LanguageModel.from_pretrained(tmp_path).config.n_layer == 10
    with pytest.raises(ValueError, match="is a training run without any checkpoint yet"):
        (tmp_path / "other/checkpoints").mkdir(parents=True)
        LanguageModel.from_pretrained(tmp_path / "other")


def test_only_step_and_digits_is_a_checkpoint(tmp_path: Path) -> None:
    for step in (99999999, 100000000, 99999999999):
        random_model(n_layer=len(str(step)) - 7).save_pretrained(tmp_path / f"checkpoints/step-{step:08}")
    for name in ("step-foo", "step-9", "step-99999999999999x", "old-step-99999999999"):
        (tmp_path / "checkpoints" / name).mkdir()
    (tmp_path / "checkpoints/step-999999999999").touch()
    assert LanguageModel.from_pretrained(tmp_path).config.n_layer == 4


def test_a_model_is_not_saved_into_a_run_or_a_checkpoint(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints/step-00000010"
    random_model(n_layer=1).save_pretrained(checkpoint)
    (tmp_path / "config.json").write_text("the recipe")
    with pytest.raises(ValueError, match="is the folder of a training run, .*; save to another one"):
        random_model().save_pretrained(tmp_path)
    assert (tmp_path / "config.json").read_text() == "the recipe"
    (checkpoint / "checksums").touch()
    with pytest.raises(ValueError, match="is a checkpoint, which stays as it was saved"):
        random_model().save_pretrained(checkpoint)
    (checkpoint / "checksums").unlink()
    (checkpoint / "model.safetensors").rename(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="holds a model and the checkpoints of a run; name .*step-00000010"):
        LanguageModel.from_pretrained(tmp_path)


NESTED = "[" * 66_000 + "]" * 66_000  # deep enough to overflow the stack of whoever prints it


def edit(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))


def edit_weights(folder: Path, drop: str = "", **added: Tensor) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.pop(drop, None)
    save_file(weights | added, folder / "model.safetensors")


def with_fewer_tokens(folder: Path) -> None:
    edit(folder, vocab_size=200)
    edit_weights(folder, **{"embedding.weight": torch.ones(200, 32)})


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "^model folder: expected .*/config.json, but it cannot be read"),
        (lambda f: (f / "config.json").write_text("{"), "config.json: expected JSON, but line 1, column 2"),
        (lambda f: edit(f, model_type="llama"), 'with "model_type": "fem_language_model"; it is another'),
        (lambda f: edit(f, depth=3), 'config.json: language model options: unknown field "depth"'),
        (lambda f: edit(f, mlp_widht=3), r'config.json: .*unknown field "mlp_widht"; did you mean mlp_width\?'),
        (lambda f: (f / "config.json").write_text('{"model_type": "fem_language_model"}'), "expected the field vocab_"),
        (lambda f: (f / "config.json").write_text(NESTED), "config.json: expected JSON of at most 64 levels"),
        (lambda f: edit(f, n_layer=10**9), "config.json: .* expected n_layer of at most 16384, got 1000000000"),
        (lambda f: edit(f, n_layer=16384), "tensors, too few for the 16384 layers of config.json beside it"),
        (lambda f: edit(f, n_head=2**62), "expected n_head of at most 1048576"),
        (lambda f: edit(f, mixer={"fem_dim": 2**63 - 1}), "expected fem_dim of at most 1048576"),
        (lambda f: edit(f, mlp_width=2**20), r"of shape \[1048576, 32\] as asked for by config.json beside it"),
        (lambda f: edit(f, n_layer=1), "holds blocks.1.* not asked for by config.json beside it"),
        (lambda f: edit(f, n_layer=3), "has no blocks.2.mixer_norm.weight, asked for by config.json beside it"),
        (lambda f: edit(f, mlp_width=50), r"expected blocks.0.mlp.gate.weight of shape \[50, 32\] .*, got \[48, 32\]"),
        (lambda f: edit(f, block_mixer="attention", mixer={}), "has no blocks.0.mixer.query.weight"),
        (lambda f: edit(f, mixer={"prior": "gla"}), 'config.json: .*unknown field "prior"'),
        (lambda f: edit_weights(f, "norm.weight"), "has no norm.weight"),
        (lambda f: edit_weights(f, extra=torch.ones(1)), "holds extra"),
        (cut, "the file is truncated"),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors.* cannot be read: No such file"),
        (lambda f: (f / "tokenizer.json").write_text(NESTED), "tokenizer.json: expected JSON of at most 64 levels"),
        (lambda f: (f / "tokenizer.json").write_text("[]"), 'tokenizer.json is not a JSON object with a "type"'),
        (lambda f: (f / "tokenizer.json").write_text('{"type": "words"}'), 'expected the type "bytes" or .* "words"'),
        (lambda f: edit(f, vocab_size=300), r"expected embedding.weight of shape \[300, 32\] .*, got \[257, 32\]"),
        (with_fewer_tokens, "the tokenizer knows 257 tokens, but the model 200"),
    ],
)
def test_a_damaged_folder_is_one_clear_error(damage: Any, message: str, tmp_path: Path) -> None:
    random_model().save_pretrained(tmp_path)
    damage(tmp_path)
    with pytest.raises(ValueError, match=message) as raised:
        LanguageModel.from_pretrained(tmp_path)
    assert len(str(raised.value).splitlines()) == 1


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="^model folder: .*/file cannot be made"):
        random_model().save_pretrained(tmp_path / "file")
    (tmp_path / "model/config.json").mkdir(parents=True)
    with pytest.raises(ValueError, match="^model folder: .*/config.json cannot be written"):
        random_model().save_pretrained(tmp_path / "model")
    assert not list((tmp_path / "model").glob(".*"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_layer": 0}, "expected n_layer of at least 1, got 0"),
        ({"mlp_width": 1.5}, "expected mlp_width to be an integer, got 1.5"),
        ({"norm_eps": 0.0}, "expected a positive norm_eps, got 0"),
        ({"norm_eps": math.inf}, "language model options: expected norm_eps to be a finite number, got inf"),
        ({"tie_embeddings": 1}, "expected tie_embeddings to be true or false, got 1"),
        ({"block_mixer": "conv"}, "expected block_mixer to be one of"),
        ({"mixer": {"n_head": 8}}, "mixer.n_head follows the model's"),
        ({"mixer": "gla"}, "expected mixer to be a dict of mixer options, got 'gla'"),
        ({"mixer": {"dropout": [0.1]}}, r"expected dropout to be a plain Python value, got \[0.1\]"),
        ({"mixer": {"causal": False}}, "expected a causal mixer"),
        ({"mixer": {"prior_type": "hmm"}}, "expected prior_type to be one of"),
        ({"block_mixer": "attention", "mixer": {"window": 8}}, "plain attention has no mixer option window"),
        ({"block_mixer": "attention", "mixer": {}, "n_embd": 36}, "a multiple of twice n_head, got 36 and 4"),
    ],
)
def test_wrong_options_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model_config("softmax", **fields)


def test_options_survive_json(kind: str) -> None:
    config = model_config(kind, norm_eps=1e-6)
    assert LanguageModelConfig.from_json(config.to_json()) == config


def test_wrong_inputs_are_refused() -> None:
    model, tokens = random_model(), some_tokens()
    with pytest.raises(ValueError, match=r"expected tokens as int64 or int32 \[B, T\], got torch.int64 \[12\]"):
        model(tokens[0])
    with pytest.raises(ValueError, match="expected tokens from 0 to 256, got 257; is it another tokenizer"):
        model(tokens.fill_(257))
    with pytest.raises(ValueError, match=r"expected mask as bool or integer \[2, 12\]"):
        model(some_tokens(), mask=torch.ones(2, 12))
    with pytest.raises(ValueError, match="a state cannot continue packed sequences"):
        model(some_tokens(1), cu_seqlens=torch.tensor([0, 12]), state=LanguageModelState())
    state = LanguageModelState()
    random_model(n_layer=3)(some_tokens(), state=state)
    with pytest.raises(ValueError, match="expected a state of 2 layers, got one of 3"):
        model(some_tokens(), state=state)
    state.layers = [state.layers[0], MixerState()]
    with pytest.raises(ValueError, match="have all seen the same tokens, got one of 12 and one of 0"):
        model(some_tokens(), state=state)


def state_after(model: LanguageModel) -> LanguageModelState:
    state = LanguageModelState()
    model(some_tokens(), state=state)
    return state


def test_a_state_belongs_to_its_model() -> None:
    attention = random_model("attention")
    words = r"expected a state of the layer \(attention, rope 10000\), got one of the layer \(softmax, corrected, rope"
    with pytest.raises(ValueError, match=words):
        attention(some_tokens(), state=state_after(random_model()))
    with pytest.raises(ValueError, match=r"got one of the layer \(attention, rope 10000\)"):
        random_model()(some_tokens(), state=state_after(attention))
    for fields, sentence in (
        ({"n_head": 2}, r"expected the state's key as Float \[2, 12, 2, 16\] on cpu, got Float \[2, 12, 4, 8\]"),
        (
            {"mixer": {"use_rope": False}},
            r"the layer \(attention, no rope\), got one of the layer \(attention, rope 10000\)",
        ),
        ({"mixer": {"rope_theta": 500.0}}, r"the layer \(attention, rope 500\), got one of"),
    ):
        with pytest.raises(ValueError, match=sentence):
            random_model("attention", **fields)(some_tokens(), state=state_after(attention))
    with pytest.raises(ValueError, match=r"expected x with the state's batch size 2, got \[3, 12, 32\]"):
        attention(some_tokens(3), state=state_after(attention))
    with pytest.raises(ValueError, match="expected the state's key as Double"):
        random_model("attention").double()(some_tokens(), state=state_after(attention))
    with pytest.raises(ValueError, match="the tokenizer knows 257 tokens, but the model 200"):
        LanguageModel(model_config(vocab_size=200), ByteTokenizer())
    with pytest.raises(ValueError, match="text needs a tokenizer, and this model has none"):
        LanguageModel(model_config()).generate("text")


def test_what_a_vocabulary_has_beyond_the_tokenizers_is_never_predicted(tmp_path: Path) -> None:
    small = random_model(tie_embeddings=False)
    large = LanguageModel(model_config(vocab_size=300, tie_embeddings=False), ByteTokenizer()).eval()
    with torch.no_grad():
        for name, parameter in large.named_parameters():
            parameter.fill_(1e3)  # of a spare token: always the likeliest, or never
            parameter[: len(small.get_parameter(name))] = small.get_parameter(name)
    large.save_pretrained(tmp_path)
    loaded = LanguageModel.from_pretrained(tmp_path)
    assert (loaded.config.vocab_size, loaded.token_count) == (300, 257)
    tokens = some_tokens()
    for model in (large, loaded):
        assert torch.equal(model(tokens), small(tokens))
        options = {"max_tokens": 30, "temperature": 1.5, "repetition_penalty": 1.2}
        assert model.generate("To be", **options) == small.generate("To be", **options)
        assert model.loglikelihood("To be", " or not") == small.loglikelihood("To be", " or not")
    with pytest.raises(ValueError, match="expected tokens from 0 to 256, got 257"):
        loaded(torch.tensor([[257]]))


def test_likelihoods_are_those_of_the_logits(kind: str) -> None:
    model = random_model(kind)
    pairs = [("To be", " or not"), ("", "that"), ("is the question: ", "whether"), ("a", "b" * 50)]
    alone = [model.loglikelihood(*pair) for pair in pairs]
    for (context, continuation), (nats, _) in zip(pairs, alone):
        tokens = torch.tensor([[256, *(context + continuation).encode()]])
        each = model(tokens)[0, :-1].log_softmax(-1).gather(1, tokens[0, 1:, None])
        assert nats == pytest.approx(each[len(context.rstrip()) :].sum().item(), rel=1e-4)
    for batch_tokens in (1, 30, 4096):
        packed = model.loglikelihoods(pairs, batch_tokens)
        assert [one.greedy for one in packed] == [one.greedy for one in alone]
        assert [one.log_probability for one in packed] == pytest.approx([one[0] for one in alone], rel=1e-4)


def test_greedy_continuations_are_recognised() -> None:
    model = random_model("gla")
    tokens = model.generate(torch.tensor([model.encode("To be")]), max_tokens=1, temperature=0)[0]
    answers = [model.loglikelihood("To be", chr(code)).greedy for code in range(128)]
    assert answers == [code == tokens.item() for code in range(128)]
    with pytest.raises(ValueError, match='^likelihood: expected a continuation, got an empty one after "To be"$'):
        model.loglikelihood("To be", "")
