"""The lm-evaluation-harness asks our models, and counts what they answer."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fem import ByteTokenizer, LanguageModel, SentencePieceTokenizer
from fem.tokenizer import Tokenizer
from sentencepiece import SentencePieceTrainer
from small_models import random_model

pytest.importorskip("lm_eval", reason='pip install "free-energy-mixer[lm-eval]"')
from fem._likelihood import pair  # noqa: E402
from fem.lm_eval import FemLM  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.api.model import TemplateLM  # noqa: E402
from lm_eval.evaluator import simple_evaluate  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

QUESTIONS = [
    {"question": "The sky is", "choices": ["blue", "made of green cheese"], "answer": 0, "text": "a b c"},
    {"question": "Two and two are", "choices": ["five", "four", "a"], "answer": 1, "text": "naïve 日本"},
    {"question": "A cat says", "choices": ["moo", "miaow"], "answer": 1, "text": "to be, or not to be"},
    {"question": "Grass is", "choices": ["green", "loud", "x"], "answer": 2, "text": "x"},
]
TASKS: dict[str, dict[str, Any]] = {
    "choose": {
        "output_type": "multiple_choice",
        "doc_to_text": "Question: {{question}}\nAnswer:",
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    },
    "roll": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "bits_per_byte"}],
    },
    "write": {
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{text}}",
        "generation_kwargs": {"until": ["\n\n", "e"], "max_gen_toks": 6, "do_sample": False},
        "metric_list": [{"metric": "exact_match"}],
    },
}


@pytest.fixture
def model() -> LanguageModel:
    return random_model("gla")


def write_task(folder: Path, name: str, task: dict[str, Any], questions: list[dict[str, Any]]) -> None:
    """A task defined by a file beside a file of questions, as a user would."""
    path = folder / f"{name}.jsonl"
    path.write_text("\n".join(json.dumps(question) for question in questions))
    common = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(path)}}}
    # JSON is YAML.
    (folder / f"{name}.yaml").write_text(json.dumps({"task": name, "test_split": "test"} | common | task))


@pytest.fixture
def evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[dict[str, Any], dict[str, Any]]]:
    """Asks a model the tasks in tmp_path; returns the harness's results and samples."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)

    def ask(model: LanguageModel, *names: str) -> tuple[dict[str, Any], dict[str, Any]]:
        manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
        done: Any = simple_evaluate(FemLM(model), tasks=list(names), task_manager=manager, bootstrap_iters=0)
        return done["results"], done["samples"]

    return ask


@pytest.fixture
def results(model: LanguageModel, tmp_path: Path, evaluate: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results and samples of all tasks."""
    for name, task in TASKS.items():
        write_task(tmp_path, name, task, QUESTIONS)
    found: tuple[dict[str, Any], dict[str, Any]] = evaluate(model, *TASKS)
    return found


def test_tasks_over_a_local_file(model: LanguageModel, results: tuple[dict[str, Any], dict[str, Any]]) -> None:
    scores, samples = results

    right, right_by_byte = 0, 0
    for question in QUESTIONS:
        context = f"Question: {question['question']}\nAnswer:"
        nats = [model.loglikelihood(context, f" {choice}")[0] for choice in question["choices"]]
        right += nats.index(max(nats)) == question["answer"]
        each = [n / len(choice) for n, choice in zip(nats, question["choices"])]
        right_by_byte += each.index(max(each)) == question["answer"]
    assert scores["choose"]["acc,none"] == right / 4
    assert scores["choose"]["acc_norm,none"] == right_by_byte / 4

    nats = [model.loglikelihood("", question["text"])[0] for question in QUESTIONS]
    size = sum(len(question["text"].encode()) for question in QUESTIONS)
    assert scores["roll"]["bits_per_byte,none"] == pytest.approx(-sum(nats) / math.log(2) / size, rel=1e-5)

    for sample, question in zip(samples["write"], QUESTIONS):
        expected = model.generate(question["question"], max_tokens=6, temperature=0, stop=["\n\n", "e"])
        assert sample["resps"] == [[expected]]


# The forms that `fem eval --task` knows, and the harness's own tasks of them on the same files.
FORMS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "pairs": (  # as in its blimp
        {"output_type": "multiple_choice", "doc_to_text": "", "doc_to_target": 0}
        | {"doc_to_choice": "{{[sentence_good, sentence_bad]}}", "metric_list": [{"metric": "acc"}]},
        [{"sentence_good": f"The cat {i} sleeps.", "sentence_bad": f"The cats {i} sleeps."} for i in range(12)],
    ),
    "choices": (
        {"output_type": "multiple_choice", "doc_to_text": "{{query}}", "doc_to_target": "gold"}
        | {"doc_to_choice": "choices", "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]},
        [
            {"query": query + str(i), "choices": [f"{i} cats", "naïve 日本", " a longer answer"], "gold": i % 3}
            for i in range(8)
            for query in ("Why?\n", "Because ", "To be or not")
        ],
    ),
    "beginnings": (  # as in its winogrande
        {"output_type": "multiple_choice", "doc_to_text": "gold", "doc_to_target": "continuation"}
        | {"doc_to_choice": "context_options", "metric_list": [{"metric": "acc"}]},
        [
            {"context_options": [f"Ann and {i} so Ann", f"Ann and {i} so Eve "], "continuation": "ran.", "gold": i % 2}
            for i in range(8)
        ],
    ),
    "words": (  # as in its lambada_openai
        {"output_type": "loglikelihood", "doc_to_text": "{{context}}", "doc_to_target": "{{' ' + continuation}}"}
        | {"metric_list": [{"metric": "acc"}, {"metric": "perplexity"}]},
        [{"context": f"He had {i}, and she had", "continuation": f"{i + 1}"} for i in range(8)],
    ),
}


@pytest.mark.parametrize("kind", ["bytes", "pieces", "pieces with a space"])
def test_the_command_gives_the_harnesss_answers(kind: str, tmp_path: Path, evaluate: Any) -> None:
    text = json.dumps(FORMS, indent=0)  # lines, as trainers want them
    tokenizer: Tokenizer = ByteTokenizer()
    if kind == "pieces":
        tokenizer = SentencePieceTokenizer.train([text], 340)
    elif kind == "pieces with a space":  # as Llama's
        path = tmp_path / "other"
        settings = {"model_type": "bpe", "byte_fallback": True, "remove_extra_whitespaces": False}
        (tmp_path / "text.txt").write_text(text)
        SentencePieceTrainer.train(
            input=str(tmp_path / "text.txt"), model_prefix=str(path), vocab_size=340, minloglevel=2, **settings
        )
        tokenizer = SentencePieceTokenizer(f"{path}.model")
    model = random_model("gla", vocab_size=tokenizer.vocab_size)
    model.tokenizer = tokenizer
    model.save_pretrained(tmp_path / "model")
    for name, (task, questions) in FORMS.items():
        write_task(tmp_path, name, task, questions)
    scores, samples = evaluate(model, *FORMS)

    files = [tmp_path / f"{name}.jsonl" for name in FORMS]
    words = ["eval", tmp_path / "model", "--json", tmp_path / "found.jsonl", "--task", *files]
    program = Path(sys.executable).parent / "fem"
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for line in (tmp_path / "found.jsonl").read_text().splitlines():
        found = json.loads(line)
        name = Path(found["task"]).stem
        by_question = sorted(samples[name], key=lambda sample: sample["doc_id"])
        expected = [[float(response[0][0]) for response in sample["resps"]] for sample in by_question]
        assert len(found["log_probabilities"]) == len(expected) == len(FORMS[name][1])
        for mine, theirs in zip(found["log_probabilities"], expected):
            assert mine == pytest.approx(theirs, rel=1e-5)
        assert found["accuracy"] == scores[name]["acc,none"]
        if name == "choices":
            assert found["normalized_accuracy"] == scores[name]["acc_norm,none"]
        if name == "words":
            assert found["perplexity"] == pytest.approx(scores[name]["perplexity,none"], rel=1e-4)


def ask(kind: Any, *arguments: tuple[Any, ...]) -> list[Instance]:
    return [Instance(kind, {}, given, index) for index, given in enumerate(arguments)]


def test_windows_of_a_long_text_count_every_token_once(model: LanguageModel) -> None:
    text = "to be, or not to be"
    windows = FemLM(model, max_length=8).loglikelihood_rolling(ask("loglikelihood_rolling", (text,), ("",)), True)
    expected = model.loglikelihood("", text[:8])[0]
    tokens = list(text.encode())
    for begin in range(8, len(text), 8):
        some = tokens[max(min(begin + 8, len(text)) - 9, 0) : begin + 8]
        logits = model(torch.tensor([some]))[0, :-1].log_softmax(-1)
        scored = len(text[begin : begin + 8])
        expected += sum(logits[i - 1, some[i]].item() for i in range(len(some) - scored, len(some)))
    assert windows == pytest.approx([expected, 0.0], rel=1e-4)
    whole = FemLM(model).loglikelihood_rolling(ask("loglikelihood_rolling", (text,)), True)
    assert whole == pytest.approx([model.loglikelihood("", text)[0]], rel=1e-6)


class Split(TemplateLM):  # type: ignore[misc]
    """The harness's own way to part tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer

    def tok_encode(self, string: str, **_: Any) -> list[int]:
        return self.tokenizer.encode(string)

    eot_token_id = _loglikelihood_tokens = loglikelihood_rolling = generate_until = None


@pytest.mark.parametrize("pieces", [0, 340])
def test_context_and_continuation_are_parted_as_the_harness_does(pieces: int) -> None:
    text = " ".join(str(question) for question in QUESTIONS)
    tokenizer = SentencePieceTokenizer.train([text], pieces) if pieces else ByteTokenizer()
    harness = Split(tokenizer)
    for context, continuation in [
        *(("The sky is", " blue"), ("The sky is ", "blue"), ("Two and two are \n", "four"), ("choices", "': ['moo'")),
        *(("a\u00a0\u3000", "b"), ("a\x1c\x85", "b"), ("a\u200b", "b"), ("naïve ", "日本 ")),
        *((text[:middle], text[middle:]) for middle in range(20, 60)),
    ]:
        before, after = harness._encode_pair(context, continuation)
        scored = pair(tokenizer, context, continuation)
        assert scored.tokens == [tokenizer.separator, *before, *after] and scored.start == 1 + len(before)


def test_long_contexts_lose_their_beginning(model: LanguageModel) -> None:
    lm = FemLM(model, max_length=6)
    [(nats, _)] = lm.loglikelihood(ask("loglikelihood", ("to be, or not", " to")), True)
    logits = model(torch.tensor([list(b" not to")]))[0, :-1].log_softmax(-1)
    assert nats == pytest.approx(sum(logits[i, t].item() for i, t in zip((3, 4, 5), b" to")), rel=1e-4)
    [text] = lm.generate_until(ask("generate_until", ("to be, or not", {"until": [], "max_gen_toks": 5})), True)
    new = model.generate(torch.tensor([list(b"or not")]), max_tokens=5, temperature=0)[0].tolist()
    assert text == bytes(token for token in new if token < 256).decode(errors="replace")


def test_answers_come_in_the_order_of_the_questions(model: LanguageModel) -> None:
    prompts = [f"{'long ' * (index % 7)}{index}" for index in range(40)]
    given = [(prompt, {"until": ["a"] if index % 2 else [], "max_gen_toks": 3}) for index, prompt in enumerate(prompts)]
    texts = FemLM(model).generate_until(ask("generate_until", *given), True)
    for prompt, (_, options), text in zip(prompts, given, texts):
        assert text == model.generate(prompt, max_tokens=3, temperature=0, stop=options["until"])


def test_repeated_draws_differ(model: LanguageModel) -> None:
    given = ("a", {"until": [], "max_gen_toks": 8, "do_sample": True, "temperature": 1.0})
    texts = FemLM(model).generate_until(ask("generate_until", *[given] * 40), True)
    assert len(set(texts)) == 40


def test_the_harness_knows_it_by_name(model: LanguageModel, tmp_path: Path) -> None:
    from lm_eval.api.registry import get_model

    model.save_pretrained(tmp_path)
    lm: Any = get_model("fem").create_from_arg_string(f"pretrained={tmp_path},max_length=64", {"batch_size": 8})
    assert isinstance(lm, FemLM) and lm.max_length == 64 and lm.tokenizer_name == "bytes"


def test_the_harnesss_command_knows_it(model: LanguageModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "model")
    write_task(tmp_path, "choose", TASKS["choose"], QUESTIONS)
    words = ["--model", "fem", "--model_args", f"pretrained={tmp_path / 'model'}", "--include_path", tmp_path]
    words += ["--tasks", "choose", "--output_path", tmp_path / "out"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "fem.lm_eval", "run", *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "|choose|" in done.stdout and "acc_norm" in done.stdout


def test_wrong_requests_are_refused(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="the task asks for generation with num_beams, which is not known here"):
        FemLM(model).generate_until(ask("generate_until", ("a", {"until": [], "num_beams": 4})), True)
    with pytest.raises(ValueError, match="expected max_length of at least 1, got 0"):
        FemLM(model, max_length=0)
    model.tokenizer = None
    with pytest.raises(ValueError, match="text needs a tokenizer"):
        FemLM(model)
