"""Language models in the lm-evaluation-harness: `simple_evaluate(model=FemLM(folder), tasks=["lambada_openai"])`.

Needs the extra: `pip install "free-energy-mixer[lm-eval]"`. Where this module is imported, the harness also knows the
model by name: `simple_evaluate("fem", "pretrained=runs/small", ...)`. Its command does not look for models of other
packages; `python -m fem.lm_eval --model fem --model_args pretrained=runs/small --tasks ...` is that command with ours.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from fem._generate import GenerateOptions, generate_texts
from fem._likelihood import BATCH_TOKENS, Scored, likelihoods, pair
from fem.language_model import LanguageModel

try:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import normalize_gen_kwargs
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window, simple_parse_args_string
except ImportError as error:
    raise ImportError('fem.lm_eval needs lm_eval: pip install "free-energy-mixer[lm-eval]"') from error

from tqdm import tqdm

__all__ = ["FemLM"]

SCORED_AT_ONCE = 256  # requests between two moves of the progress bar
ROWS_AT_ONCE = 16


@register_model("fem")
class FemLM(LM):  # type: ignore[misc]  # the harness is not typed
    """A language model for the harness.

    Args:
        pretrained: a `LanguageModel`, or the folder of one (or of a training run).
        batch_tokens: about so many tokens are computed at once.
        max_length: cut contexts to so many tokens, and long documents to windows of this length; None: never.
        max_gen_toks: at most so many new tokens where a task does not say.
    """

    def __init__(
        self,
        pretrained: str | os.PathLike[str] | LanguageModel,
        batch_tokens: int = BATCH_TOKENS,
        max_length: int | None = None,
        max_gen_toks: int = 256,
    ) -> None:
        super().__init__()
        if max_length is not None and max_length < 1:
            raise ValueError(f"FemLM: expected max_length of at least 1, got {max_length}")
        self.model = pretrained if isinstance(pretrained, LanguageModel) else LanguageModel.from_pretrained(pretrained)
        self.tokenizer = self.model.require_tokenizer()
        self.batch_tokens = batch_tokens
        self.max_length = max_length
        self.max_gen_toks = max_gen_toks

    @classmethod
    def create_from_arg_obj(cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None) -> FemLM:
        """Called by the harness; its batch_size and device have no meaning here."""
        return cls(**arg_dict)

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: dict[str, Any] | None = None) -> FemLM:
        """Called by the harness with "pretrained=folder,max_length=1024"."""
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string))

    @property
    def tokenizer_name(self) -> str:
        """Names the tokenizer in the harness's caches."""
        return self.tokenizer.fingerprint

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """(log-likelihood in nats, whether greedy decoding gives it) of each (context, continuation)."""
        scores: list[tuple[float, bool]] = []
        for some in _in_parts(requests, disable_tqdm):
            sequences = [self._fitting(pair(self.tokenizer, *request.args)) for request in some]
            scores += (
                (score.log_probability, score.greedy) for score in likelihoods(self.model, sequences, self.batch_tokens)
            )
        return scores

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """The log-likelihood of each whole text, in nats."""
        sums: list[float] = []
        for some in _in_parts(requests, disable_tqdm):
            texts = [list(self._windows(self.tokenizer.encode(request.args[0]))) for request in some]
            scores = iter(likelihoods(self.model, [window for text in texts for window in text], self.batch_tokens))
            sums += (sum(next(scores).log_probability for _ in text) for text in texts)
        return sums

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """The text that follows each context, up to the first stop string."""
        texts = [""] * len(requests)
        with tqdm(total=len(requests), desc="Generating", disable=disable_tqdm) as bar:
            for places, options in self._alike(requests):
                # Rows that draw differ by their seed and their place in the batch.
                chosen = GenerateOptions(**options, seed=places[0])
                prompts = [self.model.encode(requests[place].args[0])[-self._longest() :] for place in places]
                for place, text in zip(places, generate_texts(self.model, prompts, chosen)):
                    texts[place] = text
                bar.update(len(places))
        return texts

    def _alike(self, requests: Sequence[Instance]) -> Iterator[tuple[list[int], dict[str, Any]]]:
        """Places of requests that are generated together, and how: of about the same length, by the same options."""
        groups: dict[str, list[int]] = {}
        for place, request in enumerate(requests):
            groups.setdefault(json.dumps(self._options(request), sort_keys=True), []).append(place)
        for options, group in groups.items():
            group.sort(key=lambda place: len(requests[place].args[0]))
            for first in range(0, len(group), ROWS_AT_ONCE):
                yield group[first : first + ROWS_AT_ONCE], json.loads(options)

    def _options(self, request: Instance) -> dict[str, Any]:
        given: dict[str, Any] = dict(normalize_gen_kwargs(request.args[1], self.max_gen_toks))
        options = {"max_tokens": given.pop("max_gen_toks"), "stop": given.pop("until")}
        temperature = given.pop("temperature", 1.0)  # the default of Hugging Face, which tasks are written for
        options["temperature"] = temperature if given.pop("do_sample") else 0.0
        for name in ("top_k", "top_p", "repetition_penalty"):
            if name in given:
                options[name] = given.pop(name)
        if given:
            raise ValueError(f"FemLM: the task asks for generation with {', '.join(given)}, which is not known here")
        return options

    def _longest(self) -> int:
        return sys.maxsize if self.max_length is None else self.max_length

    def _fitting(self, sequence: Scored) -> Scored:
        """Without the tokens that are too far back; the harness wants the end of what is too long."""
        surplus = max(len(sequence.tokens) - 1 - self._longest(), 0)
        return Scored(sequence.tokens[surplus:], max(sequence.start - surplus, 1))

    def _windows(self, tokens: list[int]) -> Iterator[Scored]:
        length = min(self._longest(), max(len(tokens), 1))
        for window in get_rolling_token_windows(tokens, self.tokenizer.separator, length, 1):
            before, scored = make_disjoint_window(window)
            yield Scored(before + scored, len(before))


def _in_parts(requests: Sequence[Instance], disable_tqdm: bool) -> Iterator[Sequence[Instance]]:
    """A part of the requests at a time, with a progress bar over all of them."""
    with tqdm(total=len(requests), desc="Scoring", disable=disable_tqdm) as bar:
        for first in range(0, len(requests), SCORED_AT_ONCE):
            part = requests[first : first + SCORED_AT_ONCE]
            yield part
            bar.update(len(part))


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
