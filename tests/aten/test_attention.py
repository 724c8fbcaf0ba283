"""Scaled dot product attention takes the fused path, for every mask, and equals PyTorch CPU's."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import torch_neuronx

FUSED = "neuron::attention"

MASKS = {
    "none": lambda b, h, n, s: {},
    "causal": lambda b, h, n, s: {"is_causal": True},
    "bool": lambda b, h, n, s: {"attn_mask": torch.rand(b, 1, n, s) > 0.3},
    "bool of two dimensions": lambda b, h, n, s: {"attn_mask": torch.rand(n, s) > 0.3},
    "additive": lambda b, h, n, s: {"attn_mask": torch.randn(1, h, n, s)},
    "additive over keys": lambda b, h, n, s: {"attn_mask": torch.randn(b, 1, 1, s)},
    "expanded": lambda b, h, n, s: {"attn_mask": torch.randn(1, 1, n, s).expand(b, h, n, s)},
    "scale": lambda b, h, n, s: {"scale": 0.3},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    "sizes", [(2, 4, 17, 33, 16), (1, 3, 64, 64, 32), (2, 2, 1, 40, 20)], ids=str
)
def test_matches_cpu(dtype, mask, sizes):
    torch.manual_seed(0)
    b, h, n, s, d = sizes
    q, k, v = torch.randn(b, h, n, d), torch.randn(b, h, s, d), torch.randn(b, h, s, d)
    options = MASKS[mask](b, h, n, s)
    truth = scaled_dot_product_attention(q.double(), k.double(), v.double(), **_double(options))
    torch_neuronx.clear_op_tracking()
    moved = {
        name: (x.to("neuron", x.dtype if x.dtype == torch.bool else dtype) if _is_tensor(x) else x)
        for name, x in options.items()
    }
    on_device = [x.to("neuron", dtype) for x in (q, k, v)]
    out = scaled_dot_product_attention(*on_device, **moved)
    assert FUSED in torch_neuronx.get_executed_ops()
    assert torch_neuronx.get_fallback_ops() == []
    assert out.dtype == dtype and out.shape == truth.shape
    # Inputs and result are rounded to the dtype: a few units of its last place of values near 1.
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 4e-2, torch.float16: 6e-3}[dtype]
    torch.testing.assert_close(out.cpu().double(), truth, rtol=tolerance, atol=tolerance)


def test_grouped_heads():
    torch.manual_seed(0)
    q, k = torch.randn(2, 8, 12, 16), torch.randn(2, 2, 20, 16)
    expected = scaled_dot_product_attention(q, k, k, enable_gqa=True)
    moved = [x.to("neuron") for x in (q, k, k)]
    out = scaled_dot_product_attention(*moved, enable_gqa=True)
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_gradients_follow_the_composition():
    torch.manual_seed(0)
    host = [torch.randn(1, 2, 8, 16, requires_grad=True) for _ in range(3)]
    device = [x.detach().to("neuron").requires_grad_() for x in host]
    scaled_dot_product_attention(*host, is_causal=True).pow(2).sum().backward()
    scaled_dot_product_attention(*device, is_causal=True).pow(2).sum().backward()
    for a, e in zip(device, host, strict=True):
        torch.testing.assert_close(a.grad.cpu(), e.grad, rtol=1e-4, atol=1e-5)


def _is_tensor(x):
    return isinstance(x, torch.Tensor)


def _double(options):
    return {
        name: (x.double() if _is_tensor(x) and x.dtype != torch.bool else x)
        for name, x in options.items()
    }
