"""transformers' generate with a static cache: the decoder compiles twice (prompt, one token)."""

from __future__ import annotations

import pytest
import torch
import transformers

import torch_neuronx

SIZES = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


@pytest.mark.parametrize("family", ["Llama", "Qwen3"])
def test_generate_with_a_static_cache(family, graphs):
    torch._dynamo.reset()
    torch.manual_seed(0)
    torch_neuronx.clear_op_tracking()
    sizes = SIZES | ({"head_dim": 16} if family == "Qwen3" else {})
    config = getattr(transformers, f"{family}Config")(**sizes)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    prompt = torch.randint(1, 128, (2, 7))
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompt, **options)

    model.to("neuron")
    prompt = prompt.to("neuron")
    assert torch.equal(model.generate(prompt, **options).cpu(), expected)
    model.forward = torch.compile(model.forward, backend="neuron", fullgraph=True)
    options["cache_implementation"] = "static"
    for _ in range(2):
        assert torch.equal(model.generate(prompt, **options).cpu(), expected)
    # The prompt, and one token; none for another call or another number of tokens.
    assert graphs() == 2
    assert torch_neuronx.get_fallback_ops() == []
