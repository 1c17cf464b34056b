"""The lm-evaluation-harness asks our models, and counts what they answer."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fem import ByteTokenizer, LanguageModel, SentencePieceTokenizer
from fem.tokenizer import Tokenizer
from small_models import random_model

pytest.importorskip("lm_eval", reason='pip install "fem[lm_eval]"')
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


@pytest.fixture
def results(
    model: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Results and samples of all tasks, each defined by a file beside a file of questions, as a user would."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    lines = "\n".join(json.dumps(question) for question in QUESTIONS)
    (tmp_path / "questions.jsonl").write_text(lines)
    common = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(tmp_path / "questions.jsonl")}}}
    for name, task in TASKS.items():
        # JSON is YAML.
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"task": name, "test_split": "test"} | common | task))
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    done: Any = simple_evaluate(FemLM(model), tasks=list(TASKS), task_manager=manager, bootstrap_iters=0)
    yield done["results"], done["samples"]


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
def test_context_and_continuation_are_parted_as_the_harness_does(model: LanguageModel, pieces: int) -> None:
    text = " ".join(str(question) for question in QUESTIONS)
    tokenizer = SentencePieceTokenizer.train([text], pieces) if pieces else ByteTokenizer()
    harness, lm = Split(tokenizer), FemLM(model)
    lm.tokenizer = tokenizer
    for context, continuation in [
        *(("The sky is", " blue"), ("The sky is ", "blue"), ("Two and two are \n", "four"), ("choices", "': ['moo'")),
        *((text[:middle], text[middle:]) for middle in range(20, 60)),
    ]:
        before, after = harness._encode_pair(context, continuation)
        scored = lm._pair(context, continuation)
        if scored.tokens[1 : 1 + len(before)] == before:
            assert scored.tokens[scored.start :] == after
        else:  # a token reaches over the border: the harness would leave it out
            assert scored.start < 1 + len(before) and scored.tokens[1:][: len(before)] != before


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


def test_wrong_requests_are_refused(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="the task asks for generation with num_beams, which is not known here"):
        FemLM(model).generate_until(ask("generate_until", ("a", {"until": [], "num_beams": 4})), True)
    with pytest.raises(ValueError, match="expected max_length of at least 1, got 0"):
        FemLM(model, max_length=0)
    model.tokenizer = None
    with pytest.raises(ValueError, match="text needs a tokenizer"):
        FemLM(model)
