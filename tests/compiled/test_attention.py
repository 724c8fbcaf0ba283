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
