"""The examples run, and so does every block of the documentation."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fem import ByteTokenizer, LanguageModel, LanguageModelConfig
from forecaster_test import train_small
from image_classifier_test import train_small as train_small_classifier

TREE = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def output_of(*command: str | Path, folder: Path) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_gpt_block_learns(tmp_path: Path) -> None:
    printed = output_of(TREE / "examples/python/gpt_block.py", folder=tmp_path)
    losses = [float(loss) for loss in re.findall(r"^step +\d+  loss (\d+\.\d+)$", printed, re.MULTILINE)]
    assert len(losses) == 6
    assert losses[0] > 2.5  # a guess among 16 costs log 16 = 2.77
    assert losses[-1] < 1.0  # who has understood pays once, for the second token: log 16 / 24 = 0.12


def test_transformers_llama(tmp_path: Path) -> None:
    printed = output_of(TREE / "examples/python/transformers_llama.py", folder=tmp_path)
    assert printed.splitlines()[-1] == "cached and uncached equal: True"


DOCUMENTS = {path: path.read_text() for path in (*TREE.glob("*.md"), *TREE.glob("docs/**/*.md"))}
PRINTED = {
    "python.md": (
        "a window belongs to prior_type softmax",
        "Cache(layers=2, tokens=128)",
        "torch.bfloat16",
        'computed with dialect="reference"',
    )
}
GIVEN = {  # what blocks go on from
    "forecasting.md": lambda folder: train_small(folder, "today.csv", "runs/station"),
    "classification.md": lambda folder: train_small_classifier(folder, "runs/shapes"),
}


@pytest.mark.parametrize(
    "path", [path for path, text in DOCUMENTS.items() if "```python" in text], ids=lambda p: p.name
)
def test_every_block_of_the_documentation_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # a block writes a file
    blocks = BLOCK.findall(DOCUMENTS[path])
    assert len(blocks) == DOCUMENTS[path].count("```python")
    if path.name in GIVEN:
        GIVEN[path.name](tmp_path)
        capsys.readouterr()
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, path.name, "exec"), namespace)
    printed = capsys.readouterr().out
    for promised in PRINTED.get(path.name, ()):
        assert promised in printed


def test_the_line_of_the_readme_writes_text(tmp_path: Path) -> None:
    (line,) = re.findall(r"^    \.venv/bin/python -c '(.*)'$", DOCUMENTS[TREE / "README.md"], re.MULTILINE)
    config = LanguageModelConfig(vocab_size=257, n_embd=32, n_head=2, n_layer=1, mlp_width=48)
    LanguageModel(config, ByteTokenizer()).save_pretrained(tmp_path / "runs/book")
    assert output_of("-c", line, folder=tmp_path).strip()
