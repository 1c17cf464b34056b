"""Image classifiers in Python: what the command has trained, on pictures as people have them, and back."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command_test import command
from fem import ImageClassifier
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

SIZES = ("model.n_embd=16", "model.n_head=2", "model.n_layer=1", "model.mlp_width=32", "model.mixer.conv_hidden=4")
SIDE = 8


def bar(name: str, place: int) -> np.ndarray:
    """A bar that stands or lies, in noise."""
    pixels = np.random.default_rng(place).integers(0, 60, (SIDE, SIDE), np.uint8)
    pixels[(slice(None), place % SIDE) if name == "standing" else place % SIDE] += 180
    return pixels


def fem(folder: Path, *words: object) -> None:
    done = command(folder, "classify", *words)
    assert done.returncode == 0, done.stderr


def train_small(folder: Path, run: str) -> None:
    for part, count in (("train", 24), ("test", 4)):
        for name in ("lying", "standing"):
            own = folder / "bars" / part / name
            own.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(bar(name, i)).save(own / f"{i}.png")
    sets = [word for change in (*SIZES, "train.batch=16") for word in ("--set", change)]
    fem(folder, "train", "--data", "bars", "--epochs", 1, "--out", run, "--plain", *sets)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classify")
    train_small(folder, "run")
    wide = np.random.default_rng(1).integers(0, 256, (13, 21, 3), np.uint8)
    Image.fromarray(wide).save(folder / "wide.png")
    Image.fromarray(bar("lying", 3)).save(folder / "bar.png")
    return folder


def said_by_the_command(folder: Path, model: object, plot: Path) -> list[dict[str, float]]:
    fem(folder, "predict", model, "wide.png", "bar.png", "--plot", plot)
    pictures = json.loads(plot.with_suffix(".json").read_text())["pictures"]
    return [{name: probability for name, probability in picture["top"]} for picture in pictures]


def by_class(model: ImageClassifier, probabilities: Tensor) -> dict[str, float]:
    return dict(zip(model.classes, probabilities.tolist(), strict=True))


def test_says_what_the_command_says_bit_for_bit(trained: Path, tmp_path: Path) -> None:
    model = ImageClassifier.from_pretrained(trained / "run")
    wide, small = (Image.open(trained / f"{name}.png") for name in ("wide", "bar"))
    found = model.predict([wide, small])
    assert found.shape == (2, 2) and found.dtype == torch.float64
    assert [by_class(model, row) for row in found] == said_by_the_command(trained, "run", tmp_path / "said.png")


def test_a_picture_may_be_an_array_or_a_tensor_of_bytes_or_floats(trained: Path) -> None:
    model = ImageClassifier.from_pretrained(trained / "run")
    for name in ("wide", "bar"):
        picture = Image.open(trained / f"{name}.png")
        pixels = np.asarray(picture)
        tensor = torch.tensor(pixels).movedim(-1, 0) if pixels.ndim == 3 else torch.tensor(pixels)
        expected = model.predict(picture)
        for same in (pixels, pixels / 255, pixels[:, ::-1][:, ::-1], tensor, tensor / 255, tensor.double() / 255):
            assert torch.equal(model.predict(same), expected)
        assert torch.equal(model.predict([pixels, tensor]), torch.stack([expected, expected]))
    bars = np.stack([bar("lying", i) for i in range(3)])[..., None]
    together = model.predict(bars)
    assert together.shape == (3, 2)
    assert all(torch.equal(model.predict(one), row) for one, row in zip(bars, together))


def test_logits_are_one_call_on_what_is_standardised(trained: Path) -> None:
    model = ImageClassifier.from_pretrained(trained / "run")
    pixels = bar("standing", 5)
    mean, deviation = model.options["mean"][0], model.options["deviation"][0]
    pictures = model.standardised(pixels)
    torch.testing.assert_close(pictures, (torch.tensor(pixels)[None, None] / 255 - mean) / deviation)
    logits = model(pictures)
    assert torch.equal(logits[0].double().softmax(0), model.predict(pixels))


def test_goes_to_a_folder_and_back_bit_for_bit(trained: Path, tmp_path: Path) -> None:
    model = ImageClassifier.from_pretrained(trained / "run")
    model.save_pretrained(tmp_path / "model")
    own, kept = load_file(tmp_path / "model" / "model.safetensors"), load_file(trained / "run/best/model.safetensors")
    assert own.keys() == kept.keys() and all(torch.equal(own[name], kept[name]) for name in own)
    assert (tmp_path / "model" / "config.json").read_text() == (trained / "run/best/config.json").read_text()
    with pytest.raises(ValueError, match="is the folder of a training run"):
        model.save_pretrained(trained / "run")


def test_trains_in_python_and_the_command_takes_it(trained: Path, tmp_path: Path) -> None:
    options = ImageClassifier.from_pretrained(trained / "run").options
    torch.manual_seed(3)
    model = ImageClassifier(**options)
    torch.manual_seed(3)
    again = ImageClassifier(**options)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    pictures = model.standardised([bar(name, i) for i in range(16) for name in model.classes])
    labels = torch.arange(32) % 2
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 < 0.5 < losses[0]
    model.eval().save_pretrained(tmp_path / "model")
    wide, small = (Image.open(trained / f"{name}.png") for name in ("wide", "bar"))
    said = said_by_the_command(trained, tmp_path / "model", tmp_path / "said.png")
    assert [by_class(model, row) for row in model.predict([wide, small])] == said


def test_refuses_what_it_cannot_read(trained: Path) -> None:
    model = ImageClassifier.from_pretrained(trained / "run")
    grey = bar("lying", 1)
    for wrong, sentence in (
        ([], "at least one picture, got an empty list"),
        (Image.fromarray(grey).convert("P"), r"mode L or RGB, got P; picture.convert\('RGB'\)"),
        (Image.fromarray(grey).convert("RGBA"), "mode L or RGB, got RGBA"),
        ("bar.png", "expected a picture as an array or tensor, got str"),
        (np.zeros(5, np.uint8), r"got shape \[5\]"),
        (np.zeros((8, 8, 4), np.uint8), "expected pixels in shape .1 .grey. or 3 .RGB., height, width"),
        (np.zeros((0, 8), np.uint8), "expected pixels in shape"),
        (grey.astype(np.int64), "expected pixels as uint8, or as floats from 0 to 1"),
        (grey.astype(np.float32), "expected floats from 0 to 1"),
        (np.full((8, 8), np.nan), "expected floats from 0 to 1"),
    ):
        with pytest.raises((ValueError, RuntimeError), match=sentence):
            model.predict(wrong)
    with pytest.raises((ValueError, RuntimeError), match="expected at least two classes, got 1"):
        ImageClassifier(**{**model.options, "classes": ["one"]})
    with pytest.raises((ValueError, RuntimeError), match="expected pictures of shape"):
        model(torch.zeros(1, 1, 9, 8))
