"""The command `python -m fem.bench`, at a shape that takes no time."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from fem.bench.__main__ import main
from fem.bench.cases import PRIORS, SHAPES
from fem.bench.layers import AttentionLayer, parameter_counts
from fem.bench.reads import read_of
from fem.bench.report import Result, table_of, text_of
from support import error

S1, TINY = SHAPES[0], SHAPES[-1]


@pytest.fixture(autouse=True)
def _same_threads_afterwards() -> object:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def first_column(text: str, bench: str) -> list[str]:
    """The cases in the table under the line that names the benchmark."""
    block = text.split(f"\n{bench}\n")[1].split("\n\n")[0].splitlines()
    return [line.split("  ")[0] for line in block[2:]]


def test_prints_every_row_and_writes_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "bench.jsonl"
    main(f"--shapes tiny --repeats 3 --threads 1 --opponents sdpa --out {out}".split())
    text = capsys.readouterr().out
    assert text.startswith(f"torch {torch.__version__}, 1 threads, {torch.backends.cpu.get_cpu_capability()}, fem ")
    reads = [f"{prior} tiny {what}" for prior in PRIORS for what in ("forward", "forward+backward")]
    kinds = ("forward", "forward+backward", "forward without C")
    layers = [f"{prior} tiny {what}" for prior in PRIORS for what in kinds]
    assert first_column(text, "read") == reads
    assert first_column(text, "layer") == layers
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["case"] for line in lines] == reads + layers
    assert {line["opponent"] for line in lines} == {"torch sdpa", "torch sdpa layer"}
    assert all(line["ratio"] > 0 and line["ours_ms"] > 0 and line["repeats"] == 3 for line in lines)
    assert lines[0]["versions"].keys() == {"fem", "torch", "isa", "threads"}
    assert [path.name for path in tmp_path.iterdir()] == ["bench.jsonl"]


@pytest.mark.parametrize("bench, other", [("read", "layer"), ("layer", "read")])
def test_the_compiled_definition_has_columns(
    bench: str, other: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Traced whole, forward and backward, but not turned into C++, which takes a minute.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    main(f"--{bench} --shapes tiny --priors softmax,mamba --repeats 1 --threads 1 --opponents compile".split())
    text = capsys.readouterr().out
    assert f"\n{other}\n" not in text
    table = text.split(f"\n{bench}\n")[1].splitlines()
    assert table[0].split() == ["case", "ours", "compiled", "definition", "ratio"]
    assert table[2].startswith("softmax tiny forward ") and float(table[2].split()[-1]) > 0
    assert [line.split()[-2:] for line in table if line.startswith("mamba")][0] == ["-", "-"]


@pytest.mark.parametrize("prior", [prior for prior in PRIORS if prior != "mamba"])
def test_the_definitions_are_those_of_the_reads(prior: str) -> None:
    inputs, read, definition = read_of(prior, TINY)
    assert definition is not None
    for ours, theirs in zip(read(*inputs)[:2], definition(*inputs), strict=True):
        assert ours is not None and theirs is not None
        assert error(ours, theirs) < 64 * 2.0**-23  # sums of 48 terms in another order, a logarithm


def test_a_ratio_is_the_median_of_the_pairs() -> None:
    result = Result("a", [1.0, 10.0, 3.0], {"b": [2.0, 2.0, 2.0], "c": [4.0, 20.0, 3.0]})
    assert result.ratio("b") == 1.5
    assert result.ratio("c") == 0.5  # the ratio of the medians would be 0.75
    rows = table_of([result, Result("d", [4.0], {"c": [8.0]})])
    assert rows[0] == ["case", "ours", "b", "ratio", "c", "ratio"]
    assert rows[2] == ["d", "4.00 ms", "-", "-", "8.00 ms", "0.50"]
    assert text_of([["x", "yy"], ["long", "1"]]) == "x     yy\n----  --\nlong   1\n"


@pytest.mark.parametrize("prior", PRIORS)
def test_layers_have_the_parameters_of_attention(prior: str) -> None:
    attention = sum(p.numel() for p in AttentionLayer(S1).parameters())
    assert attention == 4 * S1.width**2 + 4 * S1.width
    without_conditioner = int(parameter_counts([prior], [S1])[1][2].replace(",", ""))
    assert 0.95 < without_conditioner / attention < 1.05  # widths are rounded to whole heads


def test_the_attention_layer_turns_queries_and_keys() -> None:
    layer = AttentionLayer(TINY)
    x = torch.randn(1, TINY.length, TINY.heads, TINY.width // TINY.heads)
    turned = layer._rotated(x)
    assert error(turned.norm(dim=-1), x.norm(dim=-1)) < 1e-6  # a rotation, in float32
    assert torch.equal(turned[:, 0], x[:, 0])
    assert (turned[:, 1, :, 0] - (x[:, 1, :, 0] * 0.5403023 - x[:, 1, :, 1] * 0.8414710)).abs().max() < 1e-6  # 1 rad


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("--shapes S9", "argument --shapes: expected some of S1,S2,S3,S4,tiny, got 'S9'"),
        ("--priors softmax,gia", "argument --priors: expected some of softmax,linear,gla,.*, got 'gia'"),
        ("--repeats 0", "argument --repeats: expected a positive number, got '0'"),
        ("--threads two", "argument --threads: expected a positive number, got 'two'"),
        ("--out /no/such/folder/a.jsonl", "argument --out: expected a file in a folder that can be written to, got .*"),
        ("--shape S1", "unrecognized arguments: --shape S1"),
    ],
)
def test_bad_options_give_one_sentence_and_code_2(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(arguments.split())
    assert exit.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert re.fullmatch(f"fem.bench: {message}\n", captured.err)


def test_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "fem.bench", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--priors LIST" in done.stdout
