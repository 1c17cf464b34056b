"""A decoder of Free Energy Mixers: `LanguageModel.from_pretrained(folder)` takes what `fem train` has made."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn

from fem._files import check_free_for_model, model_folder, write_atomically
from fem._generate import GenerateOptions, generate_texts, generate_tokens, stream_texts
from fem._likelihood import BATCH_TOKENS, Likelihood, likelihoods, pair
from fem._model_state import LanguageModelState
from fem._parameters import add_parameters, parameters_of
from fem.language_model_config import LanguageModelConfig
from fem.state import MixerState
from fem.tokenizer import Tokenizer, load_tokenizer

__all__ = ["GenerateOptions", "LanguageModel", "LanguageModelState", "Likelihood"]

INITIAL_DEVIATION = 0.02


class LanguageModel(nn.Module):
    """tokens [B, T] -> logits [B, T, token_count]: embedding, backbone, head.

    The backbone is one call of the C++ core on parameters held here. `torch.manual_seed` gives the same initial weights
    here and in C++, and the same weights give bitwise the same numbers.

    Args:
        config: the options.
        tokenizer: for text; a model without one takes and gives tokens.
        device, dtype: of the parameters.
    """

    def __init__(
        self,
        config: LanguageModelConfig,
        tokenizer: Tokenizer | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """A model with fresh parameters."""
        super().__init__()
        if tokenizer is not None and tokenizer.vocab_size > config.vocab_size:
            raise ValueError(
                f"LanguageModel: the tokenizer knows {tokenizer.vocab_size} tokens, but the model {config.vocab_size}; "
                "it is another model's"
            )
        self.config = config
        self.tokenizer = tokenizer
        self._backbone = config.backbone_json()
        names, shapes = torch.ops.fem.backbone_parameters(self._backbone)
        self._names = tuple(names)
        with torch.device("meta"):
            self.embedding = nn.Embedding(config.vocab_size, config.n_embd)
            add_parameters(self, self._names, shapes, norm_eps=config.norm_eps)
            tied = config.tie_embeddings
            self.head = None if tied else nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.to(dtype or torch.get_default_dtype()).to_empty(device=device or torch.get_default_device())
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fresh initial values from torch's default generator."""
        nn.init.normal_(self.embedding.weight, std=INITIAL_DEVIATION)
        torch.ops.fem.initialize_backbone(self._weights(), self._backbone)
        if self.head is not None:
            nn.init.normal_(self.head.weight, std=INITIAL_DEVIATION)

    def forward(
        self,
        tokens: Tensor,
        cu_seqlens: Tensor | None = None,
        mask: Tensor | None = None,
        state: LanguageModelState | None = None,
    ) -> Tensor:
        """The logits of the token after each token.

        Args:
            tokens: [B, T] int.
            cu_seqlens: [n + 1] int, borders 0 ... T of documents packed in one row (B = 1); none sees another.
            mask: [B, T] bool or integer, 1 = a real token; padding may stand left or right.
            state: continue this state and move it on; without gradients.

        Returns:
            [B, T, token_count]
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and state is None):
            return self.logits(self.hidden(tokens, cu_seqlens, mask, state))

    def hidden(
        self,
        tokens: Tensor,
        cu_seqlens: Tensor | None = None,
        mask: Tensor | None = None,
        state: LanguageModelState | None = None,
    ) -> Tensor:
        """What the head reads, [B, T, D]: `forward` without the last projection."""
        self._check(tokens, cu_seqlens, mask, state)
        if mask is not None:
            mask = mask != 0
        with torch.set_grad_enabled(torch.is_grad_enabled() and state is None):
            x = self.embedding(tokens)
            y: Tensor
            if state is None:
                y = torch.ops.fem.backbone(x, self._weights(), self._backbone, mask, cu_seqlens, self.training)
            else:
                layers = state.layers or [MixerState() for _ in range(self.config.n_layer)]
                handles = [layer._handle for layer in layers]
                y = torch.ops.fem.backbone_with_states(x, self._weights(), self._backbone, handles, mask, self.training)
                state.layers = layers
        return y

    def logits(self, hidden: Tensor) -> Tensor:
        """The head: [..., D] -> [..., token_count]."""
        head = parameters_of(self, ["embedding.weight" if self.head is None else "head.weight"])[0]
        y: Tensor = torch.ops.fem.project(hidden, [head[: self.token_count]], [])[0]
        return y

    @property
    def token_count(self) -> int:
        """Tokens there are: the tokenizer's. What a larger vocabulary has beyond them has no logits."""
        known = self.config.vocab_size
        return known if self.tokenizer is None else min(self.tokenizer.vocab_size, known)

    @overload
    def generate(self, prompt: str, **options: object) -> str: ...
    @overload
    def generate(self, prompt: list[str], **options: object) -> list[str]: ...
    @overload
    def generate(self, prompt: Tensor, **options: object) -> list[Tensor]: ...
    def generate(self, prompt: str | list[str] | Tensor, **options: object) -> str | list[str] | list[Tensor]:
        """Continues a text, several at once, or tokens [B, T]; returns what is new.

        A text begins with the tokenizer's separator and ends where the model predicts it. What becomes of a prompt does
        not depend on those beside it, and is that of `fem generate`. The library makes the tokens from the model's
        parameters: `forward`, and hooks on the model, are not called.

        Args:
            prompt: text, texts, or tokens, which are taken as they are.
            options: fields of `GenerateOptions`: max_tokens, temperature, top_k, top_p, repetition_penalty, stop, seed.
        """
        chosen = GenerateOptions(**options)  # type: ignore[arg-type]
        if isinstance(prompt, Tensor):
            return generate_tokens(self, prompt, chosen)
        if isinstance(prompt, str):
            return generate_texts(self, [self.encode(prompt)], chosen)[0]
        return generate_texts(self, [self.encode(text) for text in prompt], chosen)

    def stream(self, prompt: str, **options: object) -> Iterator[str]:
        """The text of `generate(prompt, **options)` piece by piece as it is made, in whole characters."""
        chosen = GenerateOptions(**options)  # type: ignore[arg-type]
        return (text for _, text in stream_texts(self, [self.encode(prompt)], chosen))

    def loglikelihood(self, context: str, continuation: str) -> Likelihood:
        """How likely the continuation is after the context: (nats, whether greedy decoding gives it).

        The context may be empty. White space at its end belongs to the continuation, whose tokens are those of the
        whole text behind as many as the context alone has: the rule of the lm-evaluation-harness.
        """
        return self.loglikelihoods([(context, continuation)])[0]

    def loglikelihoods(self, pairs: Sequence[tuple[str, str]], batch_tokens: int = BATCH_TOKENS) -> list[Likelihood]:
        """`loglikelihood` of many (context, continuation), packed without padding in rows of about batch_tokens."""
        tokenizer = self.require_tokenizer()
        return likelihoods(self, [pair(tokenizer, *one) for one in pairs], batch_tokens)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text that begins here: the separator, then the text's own."""
        tokenizer = self.require_tokenizer()
        return [tokenizer.separator, *tokenizer.encode(text)]

    def require_tokenizer(self) -> Tokenizer:
        """The tokenizer; an error that says what to do if there is none."""
        if self.tokenizer is None:
            raise ValueError(
                "LanguageModel: text needs a tokenizer, and this model has none: set model.tokenizer, or use tokens"
            )
        return self.tokenizer

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes config.json, model.safetensors and the tokenizer, each whole or not at all; C++ reads them.

        The folder of a training run or a checkpoint is refused.
        """
        path = Path(folder)
        check_free_for_model(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"model folder: {path} cannot be made: {error.strerror}") from None
        weights = {name: value.contiguous().cpu() for name, value in self.state_dict().items()}
        torch.ops.fem.save_safetensors(os.fspath(path / "model.safetensors"), weights, {"format": "pt"})
        if self.tokenizer is not None:
            self.tokenizer.save(path)
        write_atomically(path / "config.json", (self.config.to_json() + "\n").encode())

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> LanguageModel:
        """The model of a folder, or of the newest checkpoint of a training run, with its tokenizer, in eval mode."""
        path = model_folder(folder)
        weights, config = torch.ops.fem.load_language_model(os.fspath(path))
        tokenizer = load_tokenizer(path) if (path / "tokenizer.json").exists() else None
        with torch.device("meta"):
            model = cls(LanguageModelConfig(**json.loads(config)), tokenizer)
        model.load_state_dict(dict(weights), assign=True)
        return model.eval()

    def _weights(self) -> list[Tensor]:
        return parameters_of(self, self._names)

    def _generator(self, prompts: Sequence[list[int]], options: GenerateOptions, end: int | None) -> Any:
        """Makes the tokens that follow the prompts; a row stops after the token `end`."""
        config = self.config.options_json()
        weights = parameters_of(self, torch.ops.fem.language_model_parameters(config)[0])
        return torch.classes.fem.Generator(options._in_cpp(end), list(prompts), config, weights, self.token_count)

    def _check(
        self, tokens: Tensor, cu_seqlens: Tensor | None, mask: Tensor | None, state: LanguageModelState | None
    ) -> None:
        if tokens.dim() != 2 or tokens.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"LanguageModel: expected tokens as int64 or int32 [B, T], got {tokens.dtype} {list(tokens.shape)}"
            )
        if mask is not None and (mask.shape != tokens.shape or mask.is_floating_point()):
            raise ValueError(
                f"LanguageModel: expected mask as bool or integer {list(tokens.shape)}, 1 = a real token, got "
                f"{mask.dtype} {list(mask.shape)}"
            )
        if state is not None and cu_seqlens is not None:
            raise ValueError("LanguageModel: a state cannot continue packed sequences: expected cu_seqlens=None")
        # A graph must not depend on values.
        if not torch.compiler.is_compiling() and tokens.numel() > 0 and not tokens.is_meta:
            lowest, highest = int(tokens.min()), int(tokens.max())
            if lowest < 0 or highest >= self.token_count:
                raise ValueError(
                    f"LanguageModel: expected tokens from 0 to {self.token_count - 1}, got "
                    f"{lowest if lowest < 0 else highest}; is it another tokenizer than the model's?"
                )
