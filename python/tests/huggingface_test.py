"""Mixers inside models of transformers: its `generate`, its losses, its files."""

import copy
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fem.huggingface import FemAttention, FemCacheLayer, replace_attention
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    StaticCache,
)

PRIORS = ("softmax", "gla", "mamba")
VOCABULARY, NEW = 64, 10


def small_llama(**fields: Any) -> LlamaForCausalLM:
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}  # no end: every run has all its tokens
    return LlamaForCausalLM(LlamaConfig(**{**sizes, **heads, **special, **fields}))


def swapped(prior_type: str, **options: Any) -> LlamaForCausalLM:
    model = replace_attention(small_llama(), prior_type=prior_type, conv_hidden=8, ssm_rank=4, **options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("W_o.weight"):
                parameter.normal_(0, 1)  # what is read decides
            elif "self_attn" in name:
                parameter.normal_(0.1, 0.3)  # as they begin, conditioners are silent and scores nearly equal
            elif parameter.dim() == 2:
                parameter.normal_(0, 0.3)  # logits far enough apart that rounding does not choose a token
    return model.eval()


@pytest.fixture(params=PRIORS)
def model(request: pytest.FixtureRequest) -> LlamaForCausalLM:
    return swapped(request.param)


@pytest.fixture
def prompts() -> Tensor:
    return torch.randint(1, VOCABULARY, (3, 7))


@pytest.fixture
def padding() -> Tensor:
    return torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])


def continued(model: LlamaForCausalLM, ids: Tensor, mask: Tensor | None = None, **options: Any) -> Tensor:
    mask = torch.ones_like(ids) if mask is None else mask
    out = model.generate(ids, attention_mask=mask, **{"do_sample": False, "max_new_tokens": NEW, **options})
    assert out.shape[1] == ids.shape[1] + NEW
    return out[:, ids.shape[1] :]


@pytest.mark.parametrize("how", [{}, {"num_beams": 3}, {"do_sample": True}], ids=["greedy", "beams", "sampling"])
def test_generates_the_same_with_and_without_a_cache(
    model: LlamaForCausalLM, prompts: Tensor, padding: Tensor, how: dict[str, Any]
) -> None:
    torch.manual_seed(1)
    cached = continued(model, prompts * padding, padding, **how)
    torch.manual_seed(1)
    assert torch.equal(cached, continued(model, prompts * padding, padding, use_cache=False, **how))
    assert len(cached.unique()) > 3, "a model that repeats itself would hide differences"


def test_left_padded_prompts_continue_as_each_alone(model: LlamaForCausalLM, prompts: Tensor, padding: Tensor) -> None:
    together = continued(model, prompts * padding, padding)
    alone = [continued(model, row[real.bool()][None]) for row, real in zip(prompts, padding, strict=True)]
    assert torch.equal(together, torch.cat(alone))
    # The mask matters: without it the padding is read.
    assert not torch.equal(together, continued(model, prompts * padding))


@torch.no_grad()
def test_logits_with_a_cache_are_those_without(model: LlamaForCausalLM, prompts: Tensor, padding: Tensor) -> None:
    whole = model(prompts, attention_mask=padding, use_cache=False).logits
    cache, parts = DynamicCache(config=model.config), []
    for begin, end in [(0, 4), (4, 5), (5, 7)]:
        ids, mask = prompts[:, begin:end], padding[:, :end]
        parts.append(model(ids, attention_mask=mask, past_key_values=cache).logits)
        assert cache.get_seq_length() == end
        assert cache.get_mask_sizes(3, 0) == (end + 3, 0)
    real = padding.bool()
    assert whole.abs().max() > 1
    assert (torch.cat(parts, dim=1) - whole)[real].abs().max() < 1e-4  # logits of order 10, float32, two layers


def test_drafted_tokens_are_taken_back(model: LlamaForCausalLM, prompts: Tensor) -> None:
    prompt = prompts[:1].repeat(1, 2)  # repeats itself, so that drafts are made
    assert torch.equal(continued(model, prompt, prompt_lookup_num_tokens=3), continued(model, prompt))


@torch.no_grad()
def test_crop_goes_back_into_the_last_call_and_no_further(model: LlamaForCausalLM, prompts: Tensor) -> None:
    whole = model(prompts, use_cache=False).logits
    cache = DynamicCache()
    model(prompts[:, :2], past_key_values=cache)
    model(torch.cat([prompts[:, 2:4], prompts[:, :3]], dim=1), past_key_values=cache)
    cache.crop(-2)
    cache.crop(-1)
    assert cache.get_seq_length() == 4
    assert (model(prompts[:, 4:], past_key_values=cache).logits - whole[:, 4:]).abs().max() < 1e-4
    cache.crop(-3)
    assert (model(prompts[:, 4:5], past_key_values=cache).logits - whole[:, 4:5]).abs().max() < 1e-4
    with pytest.raises(ValueError, match=r"n up to 1, the tokens of the last call, got crop\(-2\)"):
        cache.crop(-2)
    with pytest.raises(ValueError, match=r"expected crop\(-n\)"):
        cache.crop(4)


@torch.no_grad()
def test_rows_of_a_cache_are_chosen_and_repeated(model: LlamaForCausalLM, prompts: Tensor) -> None:
    cache = DynamicCache()
    model(prompts, past_key_values=cache)
    cache.batch_select_indices(torch.tensor([True, False, True]))
    cache.batch_repeat_interleave(2)
    assert cache.batch_size == 4
    rows, token = torch.tensor([0, 0, 2, 2]), torch.tensor([[5], [6], [7], [8]])
    expected = model(torch.cat([prompts[rows], token], dim=1), use_cache=False).logits[:, -1:]
    assert (model(token, past_key_values=cache).logits - expected).abs().max() < 1e-4
    cache.reset()
    assert cache.get_seq_length() == 0


@torch.no_grad()
def test_a_prompt_is_read_once_for_several_continuations(model: LlamaForCausalLM, prompts: Tensor) -> None:
    prefix = DynamicCache()
    model(prompts[:1, :4], past_key_values=prefix)
    for _ in range(2):
        out = continued(model, prompts[:1], past_key_values=copy.deepcopy(prefix))
        assert torch.equal(out, continued(model, prompts[:1]))


def test_a_training_step_reaches_every_parameter(model: LlamaForCausalLM, prompts: Tensor, padding: Tensor) -> None:
    losses = []
    for use_cache in (True, False):  # the configuration's default is to begin a cache
        model.train().zero_grad()
        loss = model(prompts, attention_mask=padding, labels=prompts, use_cache=use_cache).loss
        loss.backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name
        losses.append(loss.item())
    assert losses[0] == losses[1]


def test_a_cache_begun_with_gradients_can_be_continued(model: LlamaForCausalLM, prompts: Tensor) -> None:
    cache = model(prompts[:, :6], use_cache=True).past_key_values
    assert cache.get_seq_length() == 6
    with pytest.raises(ValueError, match="a cache carries no gradients"):
        model(prompts[:, 6:], past_key_values=cache)
    with torch.no_grad():
        expected = model(prompts, use_cache=False).logits[:, 6:]
        assert (model(prompts[:, 6:], past_key_values=cache).logits - expected).abs().max() < 1e-4


@torch.no_grad()
def test_packed_sequences_do_not_see_each_other(model: LlamaForCausalLM, prompts: Tensor) -> None:
    lengths = [3, 1, 7]
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    sequences = [row[:n] for row, n in zip(prompts, lengths, strict=True)]
    packed = model(torch.cat(sequences)[None], position_ids=positions, use_cache=False).logits
    alone = [model(ids[None], use_cache=False).logits for ids in sequences]
    assert (packed - torch.cat(alone, dim=1)).abs().max() < 1e-4
    with pytest.raises(ValueError, match="packed sequences in a single row, got B = 2"):
        ids = torch.cat(sequences).repeat(2, 1)
        model(ids, position_ids=positions.repeat(2, 1), use_cache=False)


@pytest.mark.parametrize("prior_type", PRIORS)
def test_saved_and_loaded(prior_type: str, prompts: Tensor, tmp_path: Path) -> None:
    model = swapped(prior_type, fem_ratio=0.75)
    model.save_pretrained(tmp_path)
    config = LlamaConfig.from_pretrained(tmp_path)
    assert config.free_energy_mixer["fem_ratio"] == 0.75
    loaded = replace_attention(LlamaForCausalLM(config), **config.free_energy_mixer).eval()
    loaded.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=True)
    with torch.no_grad():
        assert torch.equal(loaded(prompts).logits, model(prompts).logits)


def test_mixers_take_width_heads_and_dtype_of_the_model() -> None:
    model = replace_attention(small_llama().to(torch.bfloat16), prior_type="gla", n_head=2)
    for index, layer in enumerate(model.model.layers):
        assert isinstance(layer.self_attn, FemAttention) and layer.self_attn.layer_idx == index
        assert (layer.self_attn.mixer.config.n_embd, layer.self_attn.mixer.config.n_head) == (32, 2)
        assert {p.dtype for p in layer.parameters()} == {torch.bfloat16}
    assert continued(model.eval(), torch.tensor([[3, 4, 5]])).shape == (1, NEW)


def test_errors_say_what_was_expected(prompts: Tensor) -> None:
    gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=8, n_head=2, n_layer=1, vocab_size=VOCABULARY, n_positions=8))
    ends = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    bart = BartForConditionalGeneration(BartConfig(d_model=8, vocab_size=VOCABULARY, **ends))
    for other in (gpt2, bart):
        with pytest.raises(ValueError, match=rf"decoder-only.*layers\[i\].self_attn.*got {type(other).__name__}"):
            replace_attention(other)
    with pytest.raises(TypeError, match="no_such_option"):
        replace_attention(small_llama(), no_such_option=1)
    model = swapped("softmax")
    with pytest.raises(ValueError, match=r"expected attention_mask as \[B, T\].*got \[3, 1, 7, 7\]"):
        model(prompts, attention_mask=torch.ones(3, 1, 7, 7))
    with pytest.raises(ValueError, match="expected past_key_values as a DynamicCache.*StaticLayer"):
        model(prompts, past_key_values=StaticCache(config=model.config, max_cache_len=16))
    with pytest.raises(ValueError, match="expected a model that fem.huggingface.replace_attention has changed"):
        unchanged = small_llama()
        unchanged.set_attn_implementation("fem")
        unchanged(prompts)
    with pytest.raises(ValueError, match="expected no keys and values"):
        FemCacheLayer().update(torch.ones(1), torch.ones(1))


def test_fem_does_not_need_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    command = "import fem, sys; print('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], capture_output=True, text=True).stdout == "False\n"
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "fem.huggingface")
    with pytest.raises(ImportError, match=r'pip install "free-energy-mixer\[transformers\]"'):
        importlib.import_module("fem.huggingface")
