"""Forecasters in Python: what the command has trained, on data frames, and back."""

import math
from pathlib import Path

import pandas as pd
import pytest
import torch
from command_test import command
from fem import Forecaster
from safetensors.torch import load_file

SMALL = ("model.n_embd=16", "model.n_head=2", "model.n_layer=1", "model.mixer.conv_hidden=4")


def table(rows: int = 240) -> pd.DataFrame:
    index = pd.date_range("2024-01-01", periods=rows, freq="h", name="time")
    load = [50 + 9 * math.sin(hour * math.pi / 12) + hour % 7 for hour in range(rows)]
    return pd.DataFrame({"load": load, "sun": [math.cos(0.3 * hour) for hour in range(rows)]}, index=index)


def fem(folder: Path, *words: object) -> str:
    done = command(folder, "forecast", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train_small(folder: Path, csv: str, run: str) -> None:
    table().to_csv(folder / csv)
    sets = [word for change in SMALL for word in ("--set", change)]
    sizes = ("--horizon", 12, "--input", 48, "--epochs", 1)
    fem(folder, "train", "--csv", csv, *sizes, "--target", "load", "--out", run, "--plain", *sets)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forecast")
    train_small(folder, "table.csv", "run")
    return folder


def test_says_what_the_command_says(trained: Path) -> None:
    said = Forecaster.from_pretrained(trained / "run").predict(table())
    written = pd.read_csv(trained / "run" / "forecast.csv", index_col=0, parse_dates=True)
    assert list(said.columns) == ["load"] and len(said) == 12
    assert list(said.index) == list(written.index)
    assert said["load"].to_numpy("float32").tolist() == written["load"].to_numpy("float32").tolist()


def test_goes_to_a_folder_and_back_bit_for_bit(trained: Path, tmp_path: Path) -> None:
    model = Forecaster.from_pretrained(trained / "run")
    model.save_pretrained(tmp_path / "model")
    own, kept = load_file(tmp_path / "model" / "model.safetensors"), load_file(trained / "run/best/model.safetensors")
    assert own.keys() == kept.keys() and all(torch.equal(own[name], kept[name]) for name in own)
    assert (tmp_path / "model" / "config.json").read_text() == (trained / "run/best/config.json").read_text()
    again = fem(trained, "predict", tmp_path / "model", "--csv", "table.csv")
    assert again == fem(trained, "predict", "run") == (trained / "run/forecast.csv").read_text()
    with pytest.raises(ValueError, match="is the folder of a training run"):
        model.save_pretrained(trained / "run")


def test_batches_and_gradients(trained: Path) -> None:
    model = Forecaster.from_pretrained(trained / "run")
    values = torch.tensor(table().to_numpy()).unfold(0, 48, 24).transpose(1, 2)
    together = model.predict(values)
    assert together.shape == (9, 12, 1)
    assert all(torch.equal(model.predict(one), row) for one, row in zip(values, together))
    model(torch.randn(2, 48, 2)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    torch.manual_seed(3)
    first = Forecaster(**model.options)
    torch.manual_seed(3)
    again = Forecaster(**model.options)
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), again.state_dict().values()))


def test_refuses_what_it_cannot_read(trained: Path) -> None:
    model = Forecaster.from_pretrained(trained / "run")
    with pytest.raises(ValueError, match="the table has no 'sun'"):
        model.predict(table()[["load"]])
    with pytest.raises(ValueError, match="at least 48 rows, got 20"):
        model.predict(table(20))
    gaps = table()
    gaps.iloc[-3, 0] = float("nan")
    with pytest.raises(ValueError, match="got gaps; fill them first"):
        model.predict(gaps)
    with pytest.raises(ValueError, match="expected horizon of at least 1 row, got 0"):
        Forecaster(**{**model.options, "horizon": 0})
