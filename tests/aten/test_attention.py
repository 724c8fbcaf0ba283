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


def _gradients(inputs, device, dtype, grad, **options):
    leaves = [x.detach().to(device, dtype).requires_grad_() for x in inputs]
    moved = {
        name: (x.to(device, x.dtype if x.dtype == torch.bool else dtype) if _is_tensor(x) else x)
        for name, x in options.items()
    }
    out = scaled_dot_product_attention(*leaves, **moved)
    out.backward(grad.to(device, dtype))
    return [out.detach(), *(x.grad for x in leaves)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("sizes", [(2, 4, 17, 33, 16), (1, 2, 130, 130, 20)], ids=str)
def test_gradients_match_cpu(dtype, mask, sizes):
    torch.manual_seed(0)
    b, h, n, s, d = sizes
    inputs = [torch.randn(b, h, n, d), torch.randn(b, h, s, d), torch.randn(b, h, s, d)]
    inputs = [x.to(dtype).double() for x in inputs]
    grad = torch.randn(b, h, n, d).to(dtype).double()
    options = MASKS[mask](b, h, n, s)
    truth = _gradients(inputs, "cpu", torch.float64, grad, **options)
    torch_neuronx.clear_op_tracking()
    got = _gradients(inputs, "neuron", dtype, grad, **options)
    assert {FUSED, "neuron::attention_backward"} <= set(torch_neuronx.get_executed_ops())
    assert torch_neuronx.get_fallback_ops() == []
    # Sums of up to 130 terms; inputs and results are rounded to the dtype.
    tolerance = {torch.float32: 2e-5, torch.bfloat16: 5e-2, torch.float16: 8e-3}.get(dtype, 1e-11)
    for actual, expected in zip(got, truth, strict=True):
        assert actual.dtype == dtype
        torch.testing.assert_close(actual.cpu().double(), expected, rtol=tolerance, atol=tolerance)


def test_gradients_of_grouped_heads():
    torch.manual_seed(0)
    inputs = [torch.randn(2, 8, 12, 16), torch.randn(2, 2, 20, 16), torch.randn(2, 2, 20, 16)]
    grad = torch.randn(2, 8, 12, 16)
    expected = _gradients(inputs, "cpu", torch.float32, grad, enable_gqa=True)
    got = _gradients(inputs, "neuron", torch.float32, grad, enable_gqa=True)
    for a, e in zip(got, expected, strict=True):
        torch.testing.assert_close(a.cpu(), e, rtol=1e-4, atol=2e-5)


def test_gradient_of_a_mask_takes_the_composition():
    torch.manual_seed(0)
    host = [torch.randn(1, 2, 8, 16) for _ in range(3)]
    masks = [torch.randn(8, 8).to(device).requires_grad_() for device in ("cpu", "neuron")]
    masks[1] = masks[0].detach().to("neuron").requires_grad_()
    for mask in masks:
        moved = [x.to(mask.device) for x in host]
        scaled_dot_product_attention(*moved, attn_mask=mask).pow(2).sum().backward()
    torch.testing.assert_close(masks[1].grad.cpu(), masks[0].grad, rtol=1e-4, atol=1e-5)


def test_gradcheck_with_dropout():
    torch.manual_seed(0)
    shape = (1, 2, 5, 4)
    leaves = [torch.randn(shape, dtype=torch.float64).to("neuron").requires_grad_() for _ in "qkv"]

    def attend(*qkv):
        torch.manual_seed(3)  # the same elements are dropped at every call
        return scaled_dot_product_attention(*qkv, dropout_p=0.4)

    assert torch.autograd.gradcheck(attend, leaves)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout(dtype):
    torch.manual_seed(0)
    n, p = 256, 0.25
    q = torch.zeros(2, 3, n, 8, device="neuron", dtype=dtype)
    v = torch.eye(n, device="neuron", dtype=dtype).expand(2, 3, n, n)
    # All keys weigh the same, so the output shows what was kept.
    out = scaled_dot_product_attention(q, q, v, dropout_p=p).cpu().float() * n
    kept = out > 0
    torch.testing.assert_close(
        out[kept], torch.full_like(out[kept], 1 / (1 - p)), rtol=1e-2, atol=0
    )
    # 393216 draws: three standard deviations of the share are 0.002.
    assert abs(kept.float().mean().item() - (1 - p)) < 0.003
    assert not torch.equal(kept[0, 0], kept[0, 1]) and not torch.equal(kept[0], kept[1])
    again = scaled_dot_product_attention(q, q, v, dropout_p=p).cpu().float() * n
    assert not torch.equal(again, out)
    torch.manual_seed(0)
    repeated = scaled_dot_product_attention(q, q, v, dropout_p=p).cpu().float() * n
    assert torch.equal(repeated, out)
    assert scaled_dot_product_attention(q, q, v, dropout_p=1.0).eq(0).all()


def _is_tensor(x):
    return isinstance(x, torch.Tensor)


def _double(options):
    return {
        name: (x.double() if _is_tensor(x) and x.dtype != torch.bool else x)
        for name, x in options.items()
    }


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("masks", ["none", "src", "padding", "both"])
def test_encoder_layer(norm_first, masks):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        16, 2, 24, activation="gelu", batch_first=True, norm_first=norm_first
    ).eval()
    x = torch.randn(3, 7, 16)
    options = {}
    if masks in ("src", "both"):
        options["src_mask"] = torch.ones(7, 7, dtype=torch.bool).triu(1)
    if masks in ("padding", "both"):
        options["src_key_padding_mask"] = torch.arange(7) >= torch.tensor([[7], [4], [6]])
    with torch.no_grad():
        expected = layer(x, **options)
        layer.to("neuron")
        torch_neuronx.clear_op_tracking()
        out = layer(x.to("neuron"), **{k: v.to("neuron") for k, v in options.items()})
    assert torch_neuronx.get_fallback_ops() == []
    assert "neuron::attention" in torch_neuronx.get_executed_ops()
    torch.testing.assert_close(out.cpu(), expected, rtol=2e-5, atol=2e-5)
