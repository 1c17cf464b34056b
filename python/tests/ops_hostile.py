"""Arguments that no operator was written for: of every valid call, one argument changed, and pairs of them at random.

Run as a program, `ops_hostile.py START EVERY PAIRS`: makes every EVERYth call from number START on, with PAIRS pairs
for each valid call, and says on standard output which one is next, so that who started it knows what ended it.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ops_cases
import torch
from fem import Forecaster, ImageClassifier, LanguageModel
from ops_cases import CASES, Case, gradient_operator, uniform
from small_models import model_config
from support import WIDTH, small_config
from torch import Tensor
from torch.utils._pytree import tree_leaves

TOKENS = 6
SECONDS = 20  # for one call
HUGE = 1 << 62
NUMBERS: dict[str, list[Any]] = {
    "int": [0, 1, -1, 2**31, 2**63 - 1, -(2**63), 2**63, None, 1.5, "1"],
    "float": [0.0, -1.0, 1e-320, 1e308, float("inf"), float("-inf"), float("nan"), None, "1"],
    "bool": [False, True, None, 2],
    "str": [
        "",
        "{",
        "null",
        "[]",
        "{}",
        "\0",
        '{"n_embd": 9223372036854775807}',
        '{"n_embd": -1, "n_head": 0}',
        None,
        1,
    ],
}

Arguments = dict[str, Any]
Change = tuple[str, Any]  # how it is called, and the argument that is given


class Valid(NamedTuple):
    """A call that succeeds."""

    name: str
    run: Any
    arguments: Callable[[], Arguments]


def registered() -> set[str]:
    schemas = torch._C._jit_get_all_schemas()
    return {s.name.removeprefix("fem::") for s in schemas if s.name.startswith("fem::")}


def operator(name: str) -> Any:
    return getattr(torch.ops.fem, name).default


def of_gradient(case: Case) -> Callable[[], Arguments]:
    return lambda: gradient_operator(case, torch.float32, TOKENS)[1]


def valid_calls(folder: Path) -> list[Valid]:
    calls = []
    for case in CASES:
        calls.append(Valid(case.id, case.run, lambda case=case: case.arguments(torch.float32, TOKENS)))
        if case.op + "_backward" in registered():
            calls.append(Valid(f"{case.id} backward", operator(case.op + "_backward"), of_gradient(case)))
    of_models = [*forecaster_calls(folder), *picture_calls(folder)]
    return [*calls, *project_calls(), *energy_calls(), *of_models, *layer_calls(folder)]


def energy_calls() -> list[Valid]:
    def arguments() -> Arguments:
        torch.manual_seed(0)
        query, key = torch.randn(2, 2, TOKENS, 2, 4).unbind()
        return {"query": query[:, 2:], "key": key}

    def along() -> Arguments:
        return {**arguments(), "direction": torch.ones(2, TOKENS - 2, 2, 4)}

    def gated() -> Arguments:
        return {**arguments(), "potential": "linear", "log_decay": torch.full((2, TOKENS, 2), -0.1)}

    table = [("energy", arguments), ("energy", gated), ("energy_gradient", arguments)]
    table += [("energy_hessian_product", along), ("newton_step", arguments)]
    return [Valid(f"{name} {given.__name__}", operator(name), given) for name, given in table]


def forecaster_calls(folder: Path) -> list[Valid]:
    table = {"columns": ["a", "b"], "targets": ["a"], "mean": [0.0, 1.0], "deviation": [1.0, 2.0]}
    sizes = {"horizon": 3, "input": TOKENS, "n_embd": 16, "n_head": 2, "n_layer": 1, "mlp_width": 24}
    Forecaster(**table, **sizes, mixer={"conv_hidden": 4}).save_pretrained(folder / "forecaster")
    weights, config = operator("load_forecaster")(str(folder / "forecaster"))

    def parameters() -> list[Tensor]:
        return [weights[name].clone() for name in operator("forecaster_parameters")(config)[0]]

    def values(dtype: torch.dtype) -> Tensor:
        torch.manual_seed(1)
        return torch.randn(2, TOKENS, 2, dtype=dtype)

    of: dict[str, Callable[[], Arguments]] = {
        "forecast": lambda: {"windows": values(torch.float32), "parameters": parameters(), "config": config},
        "forecast_values": lambda: {"values": values(torch.float64), "parameters": parameters(), "config": config},
        "forecaster_parameters": lambda: {"config": config},
        "initialize_forecaster": lambda: {"parameters": parameters(), "config": config},
        "forecaster_options": lambda: {"config": config},
        "forecaster_file": lambda: {"config": config},
        "load_forecaster": lambda: {"folder": str(folder / "forecaster")},
    }
    return [Valid(name, operator(name), arguments) for name, arguments in of.items()]


def picture_calls(folder: Path) -> list[Valid]:
    of_pictures = {"height": 4, "width": 6, "channels": 1, "patch": 2, "mean": [0.4], "deviation": [0.2]}
    sizes = {"classes": ["a", "b"], "n_embd": 16, "n_head": 2, "n_layer": 1, "mlp_width": 24}
    model = ImageClassifier(**of_pictures, **sizes, mixer={"conv_hidden": 4, "causal": False})
    model.save_pretrained(folder / "classifier")
    weights, config = operator("load_image_classifier")(str(folder / "classifier"))

    def with_parameters(**arguments: Any) -> Arguments:
        names = operator("image_classifier_parameters")(config)[0]
        return {**arguments, "parameters": [weights[name].clone() for name in names], "config": config}

    def pixels() -> Tensor:
        torch.manual_seed(1)
        return torch.randint(256, (2, 3, 5, 9), dtype=torch.uint8)

    of: dict[str, Callable[[], Arguments]] = {
        "classify": lambda: with_parameters(pictures=model.standardised(pixels())),
        "classify_pixels": lambda: with_parameters(pixels=pixels()),
        "standardised_pixels": lambda: {"pixels": pixels(), "config": config, "dtype": torch.float32},
        "image_classifier_parameters": lambda: {"config": config},
        "initialize_image_classifier": with_parameters,
        "image_classifier_options": lambda: {"config": config},
        "image_classifier_file": lambda: {"config": config},
        "load_image_classifier": lambda: {"folder": str(folder / "classifier")},
    }
    return [Valid(name, operator(name), arguments) for name, arguments in of.items()]


def project_calls() -> list[Valid]:
    def arguments() -> Arguments:
        torch.manual_seed(0)
        x, *rest = (uniform(*shape, dtype=torch.float32) for shape in ((2, TOKENS, 4), (5, 4), (1, 4), (5,), (1,)))
        return {"x": x, "weights": rest[:2], "biases": rest[2:]}

    def with_gradients() -> Arguments:
        grads = [torch.ones(2, TOKENS, 5), torch.ones(2, TOKENS, 1)]
        return {"grad_y": grads, **arguments(), "y": [], "wanted": [True] * 3}

    gradient = operator("project_backward")
    return [Valid("project", operator("project"), arguments), Valid("project backward", gradient, with_gradients)]


def layer_calls(folder: Path) -> list[Valid]:
    config = small_config().to_json()
    backbone = model_config().backbone_json()
    model = json.dumps(vars(model_config()))
    LanguageModel(model_config()).save_pretrained(folder / "model")

    def weights(of: str, text: str) -> list[Tensor]:
        torch.manual_seed(0)
        parameters = [torch.empty_like(x, device="cpu") for x in operator(of + "_parameters")(text)[1]]
        operator("initialize_" + of)(parameters, text)
        return parameters

    def tokens() -> Tensor:
        torch.manual_seed(1)
        return torch.randn(2, TOKENS, WIDTH)

    def state() -> Any:
        return torch.classes.fem.MixerState()

    mask = torch.arange(TOKENS) >= torch.tensor([[0], [2]])
    path, tensors = str(folder / "mixer"), str(folder / "tensors")
    operator("save_mixer")(path, weights("mixer", config), config)
    operator("save_safetensors")(tensors, {"x": tokens()}, {})
    table: dict[str, Callable[[], Arguments]] = {
        "mix": lambda: {"x": tokens(), "parameters": weights("mixer", config), "config": config, "mask": mask},
        "mix_with_state": lambda: {
            "x": tokens(), "parameters": weights("mixer", config), "config": config, "state": state(), "mask": mask,
        },
        "backbone": lambda: {
            "x": tokens(), "parameters": weights("backbone", backbone), "config": backbone, "mask": mask,
        },
        "backbone_with_states": lambda: {
            "x": tokens(), "parameters": weights("backbone", backbone), "config": backbone,
            "states": [state(), state()], "mask": mask,
        },
        "inspect_mixer": lambda: {
            "x": tokens(), "parameters": weights("mixer", config), "config": config, "positions": [0, 5], "mask": mask,
        },
        "mixer_config": lambda: {"config": config},
        "mixer_parameters": lambda: {"config": config},
        "mixer_letters": lambda: {"config": config, "letters": "CLT"},
        "initialize_mixer": lambda: {"parameters": weights("mixer", config), "config": config},
        "save_mixer": lambda: {"path": path + "2", "parameters": weights("mixer", config), "config": config},
        "load_mixer": lambda: {"path": path},
        "load_safetensors": lambda: {"path": tensors},
        "save_safetensors": lambda: {"path": tensors + "2", "tensors": {"x": tokens()}, "metadata": {"a": "b"}},
        "model_folder": lambda: {"folder": str(folder)},
        "best_model_folder": lambda: {"folder": str(folder)},
        "check_free_for_model": lambda: {"folder": str(folder)},
        "backbone_parameters": lambda: {"config": backbone},
        "initialize_backbone": lambda: {"parameters": weights("backbone", backbone), "config": backbone},
        "language_model_config": lambda: {"config": model},
        "language_model_parameters": lambda: {"config": model},
        "model_folder_config": lambda: {"text": (folder / "model/config.json").read_text()},
        "load_language_model": lambda: {"folder": str(folder / "model")},
    }  # fmt: skip
    return [Valid(name, operator(name), arguments) for name, arguments in table.items()]


def of_tensor(x: Tensor) -> Iterator[Change]:
    x = x.detach()
    yield "scalar", torch.ones((), dtype=x.dtype)
    yield "nothing", torch.empty(0, dtype=x.dtype)
    yield "one dimension more", x.unsqueeze(0)
    yield "flat", x.flatten()
    yield "meta", x.to("meta")
    yield "sparse", x.to_sparse()
    for dtype in (torch.half, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.bool, torch.complex64):
        yield str(dtype), x.to(dtype)
    yield "beside others", torch.stack([x, torch.full_like(x, 1)], -1)[..., 0]
    yield "offset by one", torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape)
    yield "negated by a bit", x if x.dtype == torch.bool else torch._neg_view(x)
    for d in range(x.dim()):
        if x.shape[d] > 0:
            yield f"dimension {d} empty", x.narrow(d, 0, 0)
            yield f"dimension {d} shorter", x.narrow(d, 0, x.shape[d] - 1)
            yield f"dimension {d} twice as long", torch.cat([x, x], d)
            yield f"dimension {d} expanded", x.narrow(d, 0, 1).expand_as(x)
            yield f"without dimension {d}", x.select(d, 0)
    if x.dim() > 1:
        yield "transposed", x.transpose(0, 1)
        yield "stored backwards", x.permute(*reversed(range(x.dim()))).contiguous().permute(*reversed(range(x.dim())))
    values = (
        [float("nan"), float("inf"), float("-inf"), 3e38, -1.0, 0.0] if x.is_floating_point() else [HUGE, -HUGE, -1, 0]
    )
    if x.dtype in (torch.bool, torch.uint8):
        values = [0, torch.iinfo(torch.uint8).max if x.dtype == torch.uint8 else 1]
    for value in values:
        yield f"full of {value}", torch.full_like(x, value)
    yield "reversed", x.flip(tuple(range(x.dim())))


def of_list(items: list[Any], change: Callable[[Any], Iterator[Change]]) -> Iterator[Change]:
    yield "empty list", []
    yield "one less", items[:-1]
    yield "one more", [*items, *items[:1]]
    for i in {0, len(items) - 1} if items else ():
        for name, x in change(items[i]):
            yield f"{i}: {name}", [*items[:i], x, *items[i + 1 :]]


def changes(kind: str, value: Any) -> Iterator[Change]:
    """Other arguments in the place of one, by its type in the schema."""
    yield "None", None
    if isinstance(value, Tensor):
        yield from of_tensor(value)
    elif kind == "List[Tensor]":
        yield from of_list(value, of_tensor)
    elif kind == "List[bool]":
        for other in ([], [True], [False] * len(value), [True] * (len(value) + 1), [not x for x in value]):
            yield str(other), other
    elif "Tensor" in kind:
        for shape in ((), (0,), (2,), (2, TOKENS), (2, TOKENS, 2, 3)):
            for dtype in (torch.float32, torch.bool, torch.int64):
                yield f"{dtype} {shape}", torch.ones(shape, dtype=dtype)
    elif isinstance(value, list):
        yield from of_list(value, lambda x: iter(()))
    else:
        for name in NUMBERS:
            if name in kind:
                yield from ((repr(x), x) for x in NUMBERS[name])


def hostile_calls(valid: Valid, pairs: int) -> Iterator[tuple[str, Any, Arguments]]:
    """How it is called, the operator and its arguments."""
    schema, given = valid.run._schema, valid.arguments()
    every = {a.name: a.default_value for a in schema.arguments} | given
    table = [(a.name, *change) for a in schema.arguments for change in changes(str(a.type), every[a.name])]
    yield valid.name, valid.run, given
    for name, label, value in table:
        yield f"{valid.name}: {name} = {label}", valid.run, {**given, name: value}
    chance = random.Random(valid.name)
    for _ in range(pairs if len(schema.arguments) > 1 else 0):
        (a, label_a, x), (b, label_b, y) = chance.sample(table, 2)
        yield f"{valid.name}: {a} = {label_a}, {b} = {label_b}", valid.run, {**given, a: x, b: y}


def resized_calls(dtype: torch.dtype = torch.float32) -> Iterator[tuple[str, Any, Arguments]]:
    """Every case with one size 0 or 1 in all its tensors."""
    for case, n, size in itertools.product(
        CASES, (0, 1), ("BATCH", "HEADS", "KEY_WIDTH", "VALUE_WIDTH", "RANK", "TOKENS")
    ):
        before, tokens = getattr(ops_cases, size, None), n if size == "TOKENS" else TOKENS
        setattr(ops_cases, size, n)
        try:
            arguments = case.arguments(dtype, tokens)
            yield f"{case.id}: {size} = {n}", case.run, arguments
            if case.op + "_backward" in registered():
                gradient, arguments = gradient_operator(case, dtype, tokens)
                yield f"{case.id} backward: {size} = {n}", gradient, arguments
        except (ValueError, RuntimeError, IndexError):
            pass  # refused: there is nothing to go on with
        finally:
            setattr(ops_cases, size, before)


def all_calls(folder: Path, pairs: int) -> Iterator[tuple[str, Any, Arguments]]:
    for valid in valid_calls(folder):
        yield from hostile_calls(valid, pairs)
    yield from resized_calls()


def result_of(run: Any, arguments: Arguments, freed: float) -> list[Any] | str:
    """What comes back, or the sentence; freed: what the memory that is free holds."""
    blocks = [torch.full((1 << n,), freed) for n in range(2, 17) for _ in range(2)]
    del blocks
    torch.manual_seed(2)
    try:
        with torch.set_grad_enabled(
            "_backward" not in run._schema.name
        ):  # as in backward: recorded, they are plain ATen
            return tree_leaves(run(**arguments))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def same(a: Any, b: Any) -> bool:
    if not isinstance(a, Tensor):
        return isinstance(a, torch.ScriptObject) or a == b
    return a.shape == b.shape and (a.is_meta or torch.equal(a.nan_to_num(7.5), b.nan_to_num(7.5)))


def same_results(a: list[Any] | str, b: list[Any] | str) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return type(a) is type(b)
    return all(itertools.starmap(same, zip(a, b, strict=True)))


def copied(arguments: Arguments) -> Arguments:
    """With new states, which are what an operator changes."""

    def fresh(x: Any) -> Any:
        return torch.classes.fem.MixerState() if isinstance(x, torch.ScriptObject) else x

    return {n: [fresh(y) for y in x] if isinstance(x, list) else fresh(x) for n, x in arguments.items()}


def main(start: int, every: int, pairs: int) -> None:
    calls = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # any text is a file's name
        for number, (label, run, arguments) in enumerate(all_calls(Path(folder), pairs)):
            is_valid = ": " not in label
            if number < start or (number % every and not is_valid):
                continue
            print("next", number, ascii(label), flush=True)
            signal.alarm(SECONDS)
            first, again = (result_of(run, copied(arguments), freed) for freed in (float("nan"), 1.0))
            signal.alarm(0)
            calls += 1
            refused += isinstance(first, str)
            if isinstance(first, str) and is_valid:
                print("invalid", ascii(label), ascii(first), flush=True)
            if not same_results(first, again):
                print("differs", ascii(label), flush=True)
    print("done", calls, refused)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
