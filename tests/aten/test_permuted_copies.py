"""contiguous(), clone, copy_ and reshape of permuted tensors are exact."""

from __future__ import annotations

import pytest
import torch

ORDERS = [(0, 2, 1, 3), (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.int64])
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_exact(dtype, order):
    host = torch.randint(0, 200, (2, 20, 33, 24)).to(dtype)
    device = host.to("neuron")
    expected = host.permute(order)
    view = device.permute(order)
    assert torch.equal(view.contiguous().cpu(), expected)
    assert torch.equal(view.reshape(-1).cpu(), expected.reshape(-1))
    assert torch.equal(
        view[:, 1:].clone(memory_format=torch.contiguous_format).cpu(), expected[:, 1:]
    )
    out = torch.zeros(expected.shape, dtype=dtype, device="neuron")
    out[1:].copy_(view[1:])
    assert torch.equal(out[1:].cpu(), expected[1:]) and out[0].eq(0).all()


def test_transposed_onto_itself():
    host = torch.randn(100, 100)
    device = host.to("neuron")
    device.copy_(device.t())
    assert torch.equal(device.cpu(), host.t())


def test_channels_last():
    host = torch.randn(2, 40, 30, 20)
    device = host.to("neuron").contiguous(memory_format=torch.channels_last)
    assert device.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(device.cpu(), host)
    assert torch.equal(device.contiguous().cpu(), host)


def test_compiled():
    def reorder(x):
        return x.permute(0, 2, 3, 1).contiguous()

    host = torch.randn(2, 40, 30, 20)
    got = torch.compile(reorder, backend="neuron")(host.to("neuron"))
    assert torch.equal(got.cpu(), reorder(host)) and got.is_contiguous()
