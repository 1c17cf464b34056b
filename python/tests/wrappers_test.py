"""What PyTorch wraps around a layer or a model: DDP, FSDP, activation checkpoints, autocast."""

import copy
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from fem import LanguageModel
from small_models import random_model
from support import (
    FLOAT32_GRADIENT,
    FLOAT64,
    WIDTH,
    error,
    gradient_error,
    gradients,
    random_mixer,
    tokens,
)
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

PROCESSES = 2


class TwoMixers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = random_mixer("softmax", dtype=torch.float64)
        self.second = random_mixer("gla", dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.first(x)
        return y + self.second(y)


def two_layers() -> LanguageModel:
    torch.manual_seed(0)
    return random_model("gla").double()


def batch_of(model: nn.Module) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    if isinstance(model, LanguageModel):
        return torch.randint(257, (2 * PROCESSES, 6), generator=generator)
    return torch.randn(2 * PROCESSES, 6, WIDTH, dtype=torch.float64, generator=generator)


def train(model: nn.Module, x: Tensor) -> list[float]:
    """Three steps; the loss before each."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def ddp(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model)


def fsdp1(model: nn.Module) -> nn.Module:
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)


def fsdp2(model: nn.Module) -> nn.Module:
    mesh = dist.init_device_mesh("cpu", (PROCESSES,))
    # The blocks of a language model are one call: its parameters are gathered together.
    for layer in () if isinstance(model, LanguageModel) else model.children():
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def whole(model: nn.Module) -> dict[str, Tensor]:
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return {n: p.detach().clone() for n, p in model.module.state_dict().items()}
    return {
        name.removeprefix("module."): p.full_tensor() if isinstance(p, DTensor) else p
        for name, p in model.state_dict().items()
    }


def work(
    rank: int, make: Callable[[], nn.Module], wrap: Callable[[nn.Module], nn.Module], port: int, result: Path
) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=PROCESSES)
    model = make()
    x = batch_of(model).chunk(PROCESSES)[rank]
    model = wrap(model)
    losses = torch.tensor(train(model, x))
    dist.all_reduce(losses)
    weights = whole(model)
    if rank == 0:
        torch.save({"losses": losses / PROCESSES, "weights": weights}, result)
    dist.barrier()
    os._exit(0)  # torch's own destructors may deadlock here: DDP's reducer joins a gloo thread that waits for the GIL


def run(*arguments: object) -> None:
    """work in every process; a process that hangs is a failure, not a hang of the tests."""
    context = torch.multiprocessing.spawn(work, arguments, nprocs=PROCESSES, join=False)
    deadline = time.monotonic() + 120
    while not context.join(timeout=1):
        if time.monotonic() > deadline:
            for process in context.processes:
                process.kill()
            pytest.fail("the processes did not end in two minutes")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("make", [TwoMixers, two_layers])
@pytest.mark.parametrize("wrap", [ddp, fsdp1, fsdp2])
def test_two_processes_train_like_one(
    wrap: Callable[[nn.Module], nn.Module], make: Callable[[], nn.Module], tmp_path: Path
) -> None:
    run(make, wrap, free_port(), tmp_path / "result.pt")
    result = torch.load(tmp_path / "result.pt")
    alone = make()
    losses = torch.tensor(train(alone, batch_of(alone)))
    assert error(result["losses"], losses) < FLOAT64
    assert losses[2] < losses[0]
    weights, expected, start = result["weights"], alone.state_dict(), make().state_dict()
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        # Weights after three steps, as moves from the start: the gradients' sum.
        assert error(weight - start[name], expected[name] - start[name]) < FLOAT64, name


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_changes_nothing(prior: str, dialect: str, reentrant: bool) -> None:
    mixer, x = random_mixer(prior, dialect=dialect, dropout=0.2), tokens()

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixer = mixer

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = checkpoint(self.mixer, x, use_reentrant=reentrant)
            return y

    torch.manual_seed(1)
    y, expected = gradients(mixer, x)
    torch.manual_seed(1)
    again, gradient = gradients(Checkpointed(), x)
    assert torch.equal(again, y)
    for name, value in gradient.items():
        assert torch.equal(value, expected[name.removeprefix("mixer.")]), name


def test_autocast_is_the_layer_in_bfloat16(prior: str) -> None:
    mixer, x = random_mixer(prior), tokens()
    with torch.autocast("cpu", torch.bfloat16):
        y, gradient = gradients(mixer, x)
    expected_y, expected = gradients(copy.deepcopy(mixer).bfloat16(), x.bfloat16())
    assert y.dtype == torch.bfloat16 and torch.equal(y, expected_y)
    assert {g.dtype for g in gradient.values()} == {torch.float32}
    assert all(torch.equal(gradient[name], value.float()) for name, value in expected.items())


def test_autocast_disabled_inside(prior: str, dialect: str) -> None:
    mixer, x = random_mixer(prior, dialect=dialect), tokens()
    with torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", enabled=False):
        y, gradient = gradients(mixer, x)
    expected_y, expected = gradients(mixer, x)
    assert y.dtype == torch.float32 and torch.equal(y, expected_y)
    assert gradient_error(gradient, expected) < FLOAT32_GRADIENT
