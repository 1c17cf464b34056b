"""The layers of a mixer and a model are torch's own: initialisers, parametrizations and LoRA find them and act."""

import copy
from typing import Any

import pytest
import torch
from fem import FreeEnergyMixer, LanguageModel
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from small_models import random_model
from support import FLOAT32_LAYER, error, random_mixer, tokens
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

LINEAR = {"W_v", "W_o", "W_q", "W_k", "W_lambda", "W_gate", "tdc.fwd.in_f", "tdc.fwd.x_f", "tdc.fwd.shortcut"}


def layers(module: nn.Module, kind: type[nn.Module]) -> set[str]:
    return {name for name, layer in module.named_modules() if type(layer) is kind}


def test_layers_are_torchs_own() -> None:
    mixer = random_mixer()
    assert layers(mixer, nn.Linear) == LINEAR and layers(mixer, nn.LayerNorm) == {"tdc.fwd.norm", "tdc.fwd.ln"}
    bare = random_mixer(bias=False, use_conv=False)
    assert layers(bare, nn.Linear) == {name for name in LINEAR if name.startswith("W_")}
    assert all(layer.bias is None for layer in bare.children() if isinstance(layer, nn.Linear))
    model = random_model(n_layer=1, norm_eps=0.1)
    assert {f"blocks.0.mixer.{name}" for name in LINEAR} <= layers(model, nn.Linear)
    assert layers(model, nn.RMSNorm) == {"blocks.0.mixer_norm", "blocks.0.mlp_norm", "norm"}
    assert model.get_submodule("norm").eps == 0.1
    # What they say of themselves is what they would compute.
    x = torch.randn(3, 32)
    for layer in mixer.modules():
        if isinstance(layer, nn.Linear):
            assert layer.weight.shape == (layer.out_features, layer.in_features)
            assert layer(torch.randn(3, layer.in_features)).shape == (3, layer.out_features)
    normed = x / (x.square().mean(-1, keepdim=True) + 0.1).sqrt() * model.get_parameter("norm.weight")
    assert error(model.get_submodule("norm")(x), normed) < 1e-6


def test_initialisers_find_them() -> None:
    mixer, x = random_mixer(), tokens()

    def initialise(layer: nn.Module) -> None:
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    mixer.apply(initialise)
    assert mixer(x).abs().max() == 0


class Added(nn.Module):
    """LoRA by hand."""

    def __init__(self, out: int, inside: int) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(2, inside)), nn.Parameter(torch.randn(out, 2))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.b @ self.a


def test_parametrizations_act() -> None:
    mixer, x = random_mixer(), tokens()
    other = copy.deepcopy(mixer)
    added = Added(*mixer.W_q.weight.shape)
    parametrize.register_parametrization(mixer.W_q, "weight", added)
    with torch.no_grad():
        other.W_q.weight += added.b @ added.a
    y = mixer(x)
    assert error(y, other(x)) < FLOAT32_LAYER
    y.sum().backward()
    assert added.a.grad is not None and added.a.grad.abs().max() > 0


def lora(model: Any, **options: Any) -> Any:
    config = LoraConfig(r=2, target_modules=["W_q", "W_v", "W_o"], init_lora_weights=False, **options)
    return inject_adapter_in_model(config, model)


@pytest.mark.parametrize("make", [random_mixer, random_model])
def test_lora_acts_and_learns(make: Any) -> None:
    plain = make()
    model, inputs = lora(copy.deepcopy(plain)), tokens() if make is random_mixer else torch.randint(257, (2, 9))
    y = model(inputs)
    assert error(y, plain(inputs)) > 1e-2
    y.square().sum().backward()
    adapters = {name: p for name, p in model.named_parameters() if "lora_" in name}
    assert len(adapters) == 6 * (1 if make is random_mixer else 2)
    for name, parameter in adapters.items():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name
    assert all(p.grad is None for name, p in model.named_parameters() if "lora_" not in name)
    loras = [layer for layer in model.modules() if isinstance(layer, LoraLayer)]
    for layer in loras:
        layer.merge()
    assert error(model(inputs), y) < FLOAT32_LAYER
    for layer in loras:
        layer.enable_adapters(False)
    assert error(model(inputs), plain(inputs)) < FLOAT32_LAYER


def test_lora_is_in_what_is_written_and_scored() -> None:
    model, prompt = random_model("gla", tie_embeddings=False), torch.tensor([[256, 84, 111]])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5)

    def written() -> list[int]:
        tokens: list[int] = model.generate(prompt, max_tokens=12, temperature=0)[0].tolist()
        return tokens

    before, score = written(), model.loglikelihood("To be", " or")
    lora(model)
    after = written()
    assert before != after and model.loglikelihood("To be", " or") != score
    logits = model(torch.cat([prompt, torch.tensor([after])], 1))[0]
    assert logits[2:-1].argmax(-1).tolist() == after


def hooked(mixer: FreeEnergyMixer, register: str) -> None:
    getattr(mixer.W_q, register)(lambda *_: None)


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def replaced(mixer: FreeEnergyMixer, layer: nn.Module) -> None:
    mixer.W_q = layer


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m: hooked(m, "register_forward_hook"), "^W_q has hooks, which would not be called"),
        (lambda m: hooked(m, "register_forward_pre_hook"), "^W_q has hooks"),
        (lambda m: hooked(m, "register_full_backward_hook"), "^W_q has hooks"),
        (lambda m: prune.l1_unstructured(m.W_q, "weight", 0.5), "^W_q has hooks"),
        (lambda m: replaced(m, Doubled(32, 64)), "^W_q is a Doubled, whose forward would not be called"),
        (lambda m: replaced(m, nn.Sequential(nn.Linear(32, 64))), "^W_q is a Sequential"),
        (lambda m: setattr(m.W_q, "forward", lambda x: x), "^W_q is a Linear, whose forward would not be called"),
        (lambda m: lora(m, lora_dropout=0.5).train(), "^W_v: .*expected lora_dropout=0, got 0.5"),
        (lambda m: lora(m, use_dora=True), "^W_v: expected plain LoRA without bias"),
        (lambda m: lora(m, lora_bias=True), "^W_v: expected plain LoRA without bias"),
    ],
)
def test_what_would_be_ignored_is_refused(change: Any, sentence: str) -> None:
    mixer = random_mixer()
    change(mixer)
    with pytest.raises(ValueError, match=sentence):
        mixer(tokens())


def test_dropout_of_lora_is_off_outside_training() -> None:
    mixer, x = lora(random_mixer(), lora_dropout=0.5).eval(), tokens()
    y = mixer(x)
    for layer in mixer.modules():
        if isinstance(layer, LoraLayer):
            layer.merge()
    assert error(y, mixer(x)) < FLOAT32_LAYER


def test_hooks_on_the_whole_are_called() -> None:
    model, seen = random_model(), []
    model.register_forward_hook(lambda module, inputs, logits: seen.append(logits.shape))
    model(torch.randint(257, (2, 5)))
    assert seen == [(2, 5, 257)]
    assert isinstance(model, LanguageModel)
