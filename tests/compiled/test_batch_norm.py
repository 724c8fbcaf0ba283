"""Batch and instance norm inside compiled graphs: one executable, as exact as eager mode."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

MODELS = {
    "affine": lambda: nn.BatchNorm2d(5),
    "plain": lambda: nn.BatchNorm2d(5, affine=False),
    "without running statistics": lambda: nn.BatchNorm2d(5, track_running_stats=False),
    "one dimension": lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(5 * 12)),
    "instance": lambda: nn.InstanceNorm2d(5, affine=True),
    "instance with running statistics": lambda: nn.InstanceNorm2d(5, track_running_stats=True),
    "after a convolution": lambda: nn.Sequential(nn.Conv2d(5, 7, 1), nn.BatchNorm2d(7), nn.ReLU()),
}


def run(model, x, training, compiled=False):
    """Two steps; all that they change."""
    model.train(training)
    x = x.clone().requires_grad_()
    function = torch.compile(model, backend="neuron", fullgraph=True) if compiled else model
    outputs = []
    for _ in range(2):
        y = function(x)
        (y * y.detach().cos()).sum().backward()
        outputs.append(y.detach())
    gradients = [p.grad for p in model.parameters()]
    return [*outputs, x.grad, *gradients, *(b for b in model.buffers())]


def error(values, reference):
    return [
        (v.cpu().double() - r.cpu().double()).abs().max().item()
        for v, r in zip(values, reference, strict=True)
    ]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_as_exact_as_eager(name, training, steps):
    torch._dynamo.reset()
    torch.manual_seed(0)
    host = MODELS[name]()
    for buffer in host.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    x = torch.randn(4, 5, 3, 4)
    reference = run(copy.deepcopy(host).double(), x.double(), training)
    eager = run(copy.deepcopy(host).to("neuron"), x.to("neuron"), training)
    model = copy.deepcopy(host).to("neuron")
    compiled = run(model, x.to("neuron"), training, compiled=True)
    assert steps[0] == ["graph"]
    if name != "after a convolution":  # whose gradient is called between executables
        assert steps[1] == ["graph"]
    errors = error(compiled, reference), error(eager, reference)
    for one, other, r in zip(*errors, reference, strict=True):
        # Both round in f32, in an order of their own.
        assert one <= 2 * other + 2e-6 * max(1, r.abs().max().item())


def test_without_gradients(steps):
    torch._dynamo.reset()
    model = nn.BatchNorm2d(3).eval().to("neuron", torch.bfloat16)
    x = torch.randn(2, 3, 4, 4, device="neuron", dtype=torch.bfloat16)
    with torch.no_grad():
        expected = model(x)
        actual = torch.compile(model, backend="neuron")(x)
    assert steps == [["graph"]]
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
