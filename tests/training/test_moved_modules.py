"""Moving a module keeps its parameters: what refers to them goes on."""

from __future__ import annotations

import torch
from torch import nn


def test_optimizer_made_before_the_move_trains_the_moved_module() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    model.tied = nn.Linear(4, 2)
    model.tied.weight = model.weight
    x = torch.randn(3, 4)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).sum().backward()
    gradient = model.weight.grad.clone()
    model.to("neuron")
    for name, parameter in model.named_parameters(remove_duplicate=False):
        assert parameter is parameters[name] and parameter.device.type == "neuron"
    assert model.tied.weight is model.weight
    assert model.weight.grad.device.type == "neuron"
    torch.testing.assert_close(model.weight.grad.cpu(), gradient)
    before = model.weight.detach().cpu().clone()
    optimizer.zero_grad()
    model(x.to("neuron")).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.weight.detach().cpu(), before - 0.1 * gradient)
    model.to("cpu")
    assert model.weight is parameters["weight"] and model.weight.device.type == "cpu"
    model(x).sum().backward()


def test_set_data_takes_either_device() -> None:
    x = torch.ones(3, requires_grad=True)
    x.data = torch.full((2,), 2.0, device="neuron")
    assert x.device.type == "neuron" and x.shape == (2,)
    (x * 3).sum().backward()
    assert x.grad.device.type == "neuron" and x.grad.tolist() == [3.0, 3.0]
