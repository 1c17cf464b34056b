"""torch.compile and torch.export of the layer."""

import io
from typing import Any

import pytest
import torch
from fem import FreeEnergyMixer, MixerState
from support import (
    FLOAT32_GRADIENT,
    FLOAT32_LAYER,
    HEADS,
    TOKENS,
    WIDTH,
    error,
    gradient_error,
    gradients,
    random_mixer,
    small_config,
    tokens,
)
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.export import Dim, ExportedProgram

SHAPES = ((2, TOKENS), (3, TOKENS), (2, 7), (3, 9))


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    torch._dynamo.reset()


def compiled_once(mixer: FreeEnergyMixer) -> tuple[nn.Module, CompileCounterWithBackend]:
    # AOTAutograd's graphs without inductor's code for them: what is ours is in the graphs. Inductor trains below.
    counter = CompileCounterWithBackend("aot_eager")
    return torch.compile(mixer, fullgraph=True, dynamic=True, backend=counter), counter


def compare(mixer: nn.Module, compiled: nn.Module, x: Tensor, **arguments: Any) -> None:
    y, gradient = gradients(mixer, x, **arguments)
    again, compiled_gradient = gradients(compiled, x, **arguments)
    assert error(again, y) < FLOAT32_LAYER
    renamed = {name.removeprefix("_orig_mod."): value for name, value in compiled_gradient.items()}
    assert gradient_error(renamed, gradient) < FLOAT32_GRADIENT


def test_one_compilation_serves_every_shape(prior: str, dialect: str) -> None:
    mixer = random_mixer(prior, dialect=dialect)
    compiled, counter = compiled_once(mixer)
    for batch, length in SHAPES:
        compare(mixer, compiled, tokens(batch, length))
    assert counter.frame_count == 1


@pytest.mark.parametrize("prior_type", ["softmax", "gla"])
def test_encoder_with_a_mask(prior_type: str) -> None:
    mixer = random_mixer(prior_type, causal=False)
    compiled, counter = compiled_once(mixer)
    for batch, length in SHAPES[:1] + SHAPES[3:]:
        mask = torch.arange(length) >= torch.arange(batch).unsqueeze(1)
        compare(mixer, compiled, tokens(batch, length), attention_mask=mask)
    assert counter.frame_count == 1


@pytest.mark.parametrize("prior_type", ["softmax", "mamba"])
def test_packed_sequences(prior_type: str) -> None:
    mixer = random_mixer(prior_type)
    compiled, counter = compiled_once(mixer)
    for borders in ([0, 5, 12], [0, 2, 3, 9]):
        compare(mixer, compiled, tokens(1, borders[-1]), cu_seqlens=torch.tensor(borders))
    assert counter.frame_count == 1


def test_a_compiled_layer_continues_a_state() -> None:
    mixer, x, state = random_mixer().requires_grad_(False), tokens(), MixerState()
    # Not one graph: a state is an object of the library's, and the call that moves it on stays outside.
    compiled = torch.compile(mixer, backend="aot_eager")
    parts = [compiled(part, state=state) for part in x.split(4, 1)]
    assert error(torch.cat(parts, 1), mixer(x)) < FLOAT32_LAYER


def through_a_file(program: ExportedProgram) -> ExportedProgram:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    return torch.export.load(buffer)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("prior_type", ["softmax", "rnn_softmax"])
def test_export(prior_type: str, strict: bool) -> None:
    mixer = random_mixer(prior_type).eval()
    dynamic = {"hidden_states": {0: Dim("batch"), 1: Dim("length")}}
    program = torch.export.export(mixer, (tokens(),), dynamic_shapes=dynamic, strict=strict)
    run = through_a_file(program).module()
    for batch, length in SHAPES:
        x = tokens(batch, length)
        assert error(run(x), mixer(x)) < FLOAT32_LAYER


class Block(nn.Module):
    def __init__(self, prior_type: str) -> None:
        super().__init__()
        self.mixer_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixer = FreeEnergyMixer(small_config(prior_type))
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixer(self.mixer_norm(x))
        return x + self.mlp(self.mlp_norm(x))


def toy_model() -> nn.Module:
    torch.manual_seed(0)
    symbols = 2 * HEADS
    blocks = [Block("softmax"), Block("gla")]
    return nn.Sequential(nn.Embedding(symbols, WIDTH), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, symbols))


def loss_curve(model: nn.Module, steps: int = 20) -> Tensor:
    """To name the symbol of three tokens ago."""
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(steps):
        text = torch.randint(2 * HEADS, (4, TOKENS + step % 3), generator=generator)
        loss = nn.functional.cross_entropy(model(text)[:, 3:].flatten(0, 1), text[:, :-3].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def test_training_compiled_follows_the_eager_loss_curve() -> None:
    eager = loss_curve(toy_model())
    model = toy_model()
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled = loss_curve(torch.compile(model, fullgraph=True, dynamic=True))
    assert eager[-1] < 0.95 * eager[0]
    # Two eager runs whose weights start one rounding apart stay within 1e-6 of each other; inductor rounds more often.
    assert (compiled - eager).abs().max().item() < 1e-5
