"""torch.equal reads its answer from the device; nothing runs on the CPU."""

from __future__ import annotations

import pytest
import torch

import torch_neuronx

DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 4)], ids=str)
def test_follows_cpu(dtype, shape):
    torch_neuronx.clear_op_tracking()
    x = torch.ones(shape).to(dtype)
    y = x.clone()
    if y.numel():
        y.view(-1)[-1] = 0
    device = x.to("neuron")
    assert torch.equal(device, x.to("neuron"))
    assert torch.equal(device, y.to("neuron")) == torch.equal(x, y)
    assert torch.equal(device.t() if x.dim() == 2 else device, device) == torch.equal(
        x.t() if x.dim() == 2 else x, x
    )
    assert torch_neuronx.get_fallback_ops() == []


def test_nan_differs_from_itself():
    x = torch.tensor([1.0, float("nan")], device="neuron")
    assert not torch.equal(x, x.clone())


def test_refuses_other_dtypes_and_devices():
    x = torch.ones(2, device="neuron")
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.equal(x, x.int())
    with pytest.raises(RuntimeError, match="different devices"):
        torch.equal(x, torch.ones(2))
