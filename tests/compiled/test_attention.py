"""Fused attention and its gradient inside compiled graphs."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import torch_neuronx


class Block(torch.nn.Module):
    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(48, 3 * 48)
        self.out = torch.nn.Linear(48, 48)
        self.masked = masked

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 4, 12).permute(2, 0, 3, 1, 4)
        mask = None
        if self.masked:
            mask = (torch.arange(n, device=x.device) < n - 3)[None]
        y = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=not self.masked)
        return x + self.out(y.transpose(1, 2).reshape(b, n, 48))


@pytest.mark.parametrize("masked", [False, True])
def test_training_step_matches_cpu(masked):
    torch.manual_seed(0)
    host = Block(masked)
    device = Block(masked)
    device.load_state_dict(host.state_dict())
    device.to("neuron")
    x = torch.randn(2, 37, 48)
    there = x.to("neuron").requires_grad_()
    here = x.clone().requires_grad_()
    host(here).pow(2).mean().backward()
    torch_neuronx.clear_op_tracking()
    compiled = torch.compile(device, backend="neuron", fullgraph=True)
    compiled(there).pow(2).mean().backward()
    assert torch_neuronx.get_fallback_ops() == []
    # Sums of up to 74 terms in f32, in another order.
    torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=1e-4, atol=1e-6)
    for name, parameter in host.named_parameters():
        got = device.get_parameter(name).grad.cpu()
        torch.testing.assert_close(got, parameter.grad, rtol=1e-4, atol=1e-6)


def test_two_attentions_of_the_same_queries_and_keys():
    def both(q, k, v, mask):
        return (
            scaled_dot_product_attention(q, k, v),
            scaled_dot_product_attention(q, k, v, attn_mask=mask),
        )

    torch.manual_seed(0)
    inputs = [torch.randn(1, 2, 9, 8) for _ in range(3)] + [torch.randn(9, 9)]
    expected = both(*inputs)
    got = torch.compile(both, backend="neuron")(*(x.to("neuron") for x in inputs))
    for a, e in zip(got, expected, strict=True):
        torch.testing.assert_close(a.cpu(), e, rtol=1e-5, atol=1e-5)


# Shape of the mask, batch, heads of the queries and of the keys, causal.
MASKS = {
    "full": ((2, 4, 7, 9), 4, False),
    "per head": ((1, 4, 1, 9), 4, False),
    "rank 2": ((7, 9), 4, False),
    "one number": ((1,), 4, False),
    "shared keys": ((2, 1, 7, 9), 2, False),
    "rows without a key": ((2, 4, 7, 9), 4, "masked"),
}


def mask_gradients(case, dtype, device, compiled):
    shape, heads, masked = MASKS[case]
    g = torch.Generator().manual_seed(0)
    q = torch.randn(2, 4, 7, 8, generator=g)
    k, v = (torch.randn(2, heads, 9, 8, generator=g) for _ in range(2))
    mask = torch.randn(shape, generator=g)
    weights = torch.randn(2, 4, 7, 8, generator=g)
    if masked:
        mask[:, :, 3] = -torch.inf
    inputs = [t.to(device, dtype).requires_grad_() for t in (q, k, v, mask)]

    def attend(q, k, v, mask):
        # No leaf: a model computes it, as T5's relative positions.
        return scaled_dot_product_attention(q, k, v, mask * 2, enable_gqa=heads != 4)

    function = torch.compile(attend, backend="neuron", fullgraph=True) if compiled else attend
    (function(*inputs) * weights.to(device, dtype)).sum().backward()
    return [t.grad.cpu().double() for t in inputs]


@pytest.mark.parametrize("case", MASKS)
def test_the_gradient_of_the_mask(case, steps):
    torch._dynamo.reset()
    reference = mask_gradients(case, torch.float64, "cpu", False)
    for compiled in (False, True):
        actual = mask_gradients(case, torch.float32, "neuron", compiled)
        for a, e in zip(actual, reference, strict=True):
            # f32 throughout, sums of up to 504 terms of size 1. The CPU's reference has NaN where
            # an infinite mask is multiplied by the zero gradient: nothing flows there.
            torch.testing.assert_close(a, e.nan_to_num(0), rtol=1e-4, atol=1e-5)
    assert steps and all(kinds == ["graph"] for kinds in steps)


def test_the_gradient_of_a_bfloat16_mask():
    torch._dynamo.reset()
    reference = mask_gradients("per head", torch.float64, "cpu", False)
    actual = mask_gradients("per head", torch.bfloat16, "neuron", True)
    # Inputs and results of 8 bits; the largest gradients are of size 10.
    torch.testing.assert_close(actual[3], reference[3], rtol=0.03, atol=0.1)
