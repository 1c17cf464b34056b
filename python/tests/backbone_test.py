"""The backbone as one operator: in compiled graphs, under torch.func and autocast, as an encoder."""

import json
from typing import Any

import pytest
import torch
from fem import FreeEnergyMixer, LanguageModel, LanguageModelState
from small_models import BY_HAND, COMPARED, KINDS, model_config, random_model
from support import FLOAT32_GRADIENT, FLOAT32_LAYER, FLOAT64, error
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint

BFLOAT16 = 0.1  # two blocks whose products are rounded, and a sum over the vocabulary


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Every prior, and every other mixer."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    torch._dynamo.reset()


def some_tokens(batch: int, length: int) -> Tensor:
    return torch.randint(257, (batch, length), generator=torch.Generator().manual_seed(batch * length))


def loss_and_gradients(model: Any, tokens: Tensor, **arguments: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    logits = model(tokens, **arguments)
    real = arguments.get("mask", torch.ones_like(tokens)) != 0
    logits[real].square().mean().backward()
    return logits.detach()[real], {n.removeprefix("_orig_mod."): p.grad for n, p in model.named_parameters()}


@pytest.mark.parametrize("arrangement", ["rows", "padded", "packed"])
@pytest.mark.parametrize("kind", ["gla", "attention", *COMPARED])  # compile_test.py has every prior
def test_one_graph_serves_every_shape(kind: str, arrangement: str) -> None:
    model = random_model(kind, n_layer=1)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    compilations = []
    for batch, length in ((2, 11), (3, 7)):
        tokens, arguments = some_tokens(batch, length), {}
        if arrangement == "padded":
            arguments["mask"] = torch.arange(length) >= torch.arange(batch).unsqueeze(1)
        if arrangement == "packed":
            tokens = tokens.view(1, -1)
            arguments["cu_seqlens"] = torch.tensor([0, 4, batch * length // 2, batch * length])
        expected, gradients = loss_and_gradients(model, tokens, **arguments)
        logits, compiled_gradients = loss_and_gradients(compiled, tokens, **arguments)
        assert error(logits, expected) < 2 * FLOAT32_LAYER
        for name, gradient in gradients.items():
            assert error(compiled_gradients[name], gradient) < 2 * FLOAT32_GRADIENT, name
        compilations.append(counter.frame_count)
    assert 0 < compilations[0] == compilations[1]


@pytest.mark.parametrize("kind", ["gla", "attention", *COMPARED])
def test_a_compiled_model_continues_a_state(kind: str) -> None:
    model, tokens, state = random_model(kind), some_tokens(2, 9), LanguageModelState()
    compiled = torch.compile(model, backend="aot_eager")
    parts = [compiled(part, state=state) for part in tokens.split(4, 1)]
    assert error(torch.cat(parts, 1), model(tokens)) < 2 * FLOAT32_LAYER


def test_per_sample_gradients(kind: str) -> None:
    model, tokens = random_model(kind).double(), some_tokens(3, 6)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x = model.embedding(tokens).detach()
    names = model._names

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        y: Tensor = torch.ops.fem.backbone(x[None], [parameters[name] for name in names], model.config.backbone_json())
        return y.square().sum()

    each = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for row in range(3):
        alone = grad(loss)(parameters, x[row])
        for name in names:
            assert error(each[name][row], alone[name]) < FLOAT64, name
    logits = functional_call(model, {name: 2 * p for name, p in parameters.items()}, (tokens,))
    assert not torch.allclose(logits, model(tokens))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_changes_nothing(kind: str, reentrant: bool) -> None:
    model, tokens = random_model(kind), some_tokens(2, 9)
    expected, gradients = loss_and_gradients(model, tokens)
    model.zero_grad()
    x = model.embedding(tokens)
    arguments = (model._weights(), model.config.backbone_json())
    hidden = checkpoint(torch.ops.fem.backbone, x, *arguments, use_reentrant=reentrant)
    logits = model.logits(hidden)
    logits.square().mean().backward()
    assert torch.equal(logits.flatten(0, 1), expected)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and torch.equal(parameter.grad, gradients[name]), name


def test_autocast_rounds_products_alone(kind: str) -> None:
    model, tokens = random_model(kind), some_tokens(2, 9)
    expected, gradients = loss_and_gradients(model, tokens)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.hidden(tokens)
        logits = model.logits(hidden)
    assert hidden.dtype == torch.float32 and logits.dtype == torch.bfloat16
    assert 0 < error(logits.flatten(0, 1), expected) < BFLOAT16
    model.zero_grad()
    logits.float().square().mean().backward()
    assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {torch.float32}


def as_encoder(model: LanguageModel) -> str:
    config = json.loads(model.config.backbone_json())
    config["mixer"]["causal"] = False
    return json.dumps(config)


@pytest.mark.parametrize("kind", BY_HAND)
def test_an_encoder_sees_later_tokens_and_no_padding(kind: str) -> None:
    model = random_model(kind).double()
    x, config = model.embedding(some_tokens(2, 9)).detach(), as_encoder(model)
    mask = torch.arange(9) < torch.tensor([[9], [5]])
    y = torch.ops.fem.backbone(x, model._weights(), config, mask)
    alone = torch.ops.fem.backbone(x[1:, :5], model._weights(), config)
    causal = torch.ops.fem.backbone(x[1:, :5], model._weights(), model.config.backbone_json())
    assert error(y[1:, :5], alone) < FLOAT64
    assert error(causal[:, :4], alone[:, :4]) > FLOAT64


def test_wrong_arguments_are_refused() -> None:
    model = random_model()
    x, weights, config = model.embedding(some_tokens(2, 4)), model._weights(), model.config.backbone_json()
    run = torch.ops.fem.backbone
    for arguments, sentence in (
        ((x, weights[:-1], config), r"^backbone: expected norm.weight after \d+ parameters, got no more"),
        ((x, [*weights, x], config), r"^backbone: expected \d+ parameters, got"),
        ((x, [weights[1], *weights[1:]], config), r"^backbone: expected blocks.0.mixer_norm.weight of shape \[32\]"),
        ((x[0], weights, config), r"^backbone: expected x of shape \[B, T, D=32\], got \[4, 32\]"),
        ((x.double(), weights, config), "^backbone: expected x as Float on cpu like the weights, got Double"),
        ((x, weights, config, torch.ones(2, 4)), r"^backbone: expected mask as bool \[B=2, T=4\]"),
        ((x, weights, "{"), "^backbone options: expected JSON, but line 1, column 2"),
        ((x, weights, '{"depth": 3}'), '^backbone options: unknown field "depth"'),
        ((x, weights, "{}"), "^backbone: expected n_embd of at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=sentence):
            run(*arguments)
    with pytest.raises(ValueError, match="expected a state for every layer, got none"):
        torch.ops.fem.backbone_with_states(x.detach(), weights, config, [])


@pytest.mark.parametrize("kind", BY_HAND)
def test_a_seed_gives_the_weights_of_the_layers_one_after_the_other(kind: str) -> None:
    config = model_config(kind, tie_embeddings=False)
    torch.manual_seed(3)
    model = LanguageModel(config)

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.empty(rows, columns).normal_(0, 0.02)

    torch.manual_seed(3)
    expected = {"embedding.weight": matrix(257, 32)}
    for i in range(2):
        mixer: dict[str, Tensor] = {}
        if kind == "attention":
            for name in ("query", "key", "value", "output"):
                mixer |= {f"{name}.weight": matrix(32, 32), f"{name}.bias": torch.zeros(32)}
        else:
            mixer = FreeEnergyMixer(config.mixer_config()).state_dict()
        expected |= {f"blocks.{i}.mixer.{name}": value for name, value in mixer.items()}
        expected |= {f"blocks.{i}.{name}_norm.weight": torch.ones(32) for name in ("mixer", "mlp")}
        for name, shape in (("gate", (48, 32)), ("up", (48, 32)), ("down", (32, 48))):
            expected[f"blocks.{i}.mlp.{name}.weight"] = matrix(*shape)
    expected |= {"norm.weight": torch.ones(32), "head.weight": matrix(257, 32)}
    weights = model.state_dict()
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(weights[name], value), name
