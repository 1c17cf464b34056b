"""A Llama whose attention is the Free Energy Mixer: a little training, then generation with and without a cache.

pip install "free-energy-mixer[transformers]"
"""

import torch
from fem.huggingface import replace_attention
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = {"vocab_size": 256, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
config = LlamaConfig(**sizes, num_attention_heads=4, eos_token_id=None)
model = replace_attention(LlamaForCausalLM(config), prior_type="gla")

text = torch.tensor([list(b"to be or not to be, that is the question: ") * 4])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(30):
    loss = model(text, labels=text).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")

model.eval()
prompt = torch.tensor([list(b"to be or")])
cached, uncached = (model.generate(prompt, max_new_tokens=40, do_sample=False, use_cache=use) for use in (True, False))
print(bytes(cached[0].tolist()))
print("cached and uncached equal:", torch.equal(cached, uncached))
