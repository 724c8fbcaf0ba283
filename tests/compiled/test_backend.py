"""torch.compile(backend="neuron"): whole graphs with static shapes give eager's results."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import torch_neuronx
from torch_neuronx.neuron_dynamo_backend import get_model_name, set_model_name


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    torch.manual_seed(0)


def check(function, *inputs, rtol=1e-5, atol=1e-6, **options):
    """Compiled on the device against eager on the CPU."""
    expected = function(*inputs)
    compiled = torch.compile(function, backend="neuron", fullgraph=True, **options)
    actual = compiled(*[x.to("neuron") if isinstance(x, torch.Tensor) else x for x in inputs])
    torch.testing.assert_close(
        torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), actual),
        expected,
        rtol=rtol,
        atol=atol,
    )
    return compiled


class Mlp(nn.Module):
    """A module of its own: Dynamo does not trace nn.Sequential.forward as a whole frame."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(32, 64),
            nn.GELU(),
            nn.LayerNorm(64),
            nn.Linear(64, 48),
            nn.SiLU(),
            nn.Linear(48, 8),
        )

    def forward(self, x):
        return self.layers(x).softmax(-1)


mlp = Mlp


def test_inference():
    host = mlp()
    device = copy.deepcopy(host).to("neuron")
    compiled = torch.compile(device, backend="neuron", fullgraph=True)
    x = torch.randn(16, 32)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x.to("neuron")).cpu(), host(x), rtol=1e-5, atol=1e-6)


def test_module_compile_and_training():
    host = mlp()
    device = copy.deepcopy(host).to("neuron")
    device.compile(backend="neuron", fullgraph=True, dynamic=False)
    x = torch.randn(16, 32)
    for model, where in ((host, "cpu"), (device, "neuron")):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(x.to(where)).pow(2).sum().backward()
            optimizer.step()
    for a, b in zip(device.parameters(), host.parameters(), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-6)


FUNCTIONS = {
    "views": lambda x: (
        x.t().reshape(4, -1)[1:3, ::2].unsqueeze(0),
        x.flip(0),
        x.unbind(1)[2],
        x.split(3, 1)[0],
    ),
    "outputs that are inputs": lambda x: (x, x + 1, x),
    "several outputs of one reduction": lambda x: (
        x.softmax(1),
        x.mean(1),
        x.var(1, keepdim=True),
        x.argmax(0),
    ),
    "scalars": lambda x: x * 2.5 + 3 - x / 7,
    "constants": lambda x: x + torch.arange(8, device=x.device) * torch.ones(8, device=x.device),
    "concatenation": lambda x: torch.cat([x, x * 2, torch.stack([x[:, 0], x[:, 1]], 1)], 1),
    "rotary": lambda x: torch.cat(
        [x[..., :4] * x[..., 4:].cos(), x[..., 4:] * x[..., :4].sin()], -1
    ),
    "masks": lambda x: torch.where(x > 0, x, -x).masked_fill(x > 1, 0.0).tril(),
    "long residual chain": lambda x: sum((x * i).sin() for i in range(40)),
    "shared by matmuls": lambda x: (lambda y: (y @ y.t()) + y.sum() + (y * y).mean(0).sum())(
        x.exp().sin() * x.cos()
    ),
    "dtypes": lambda x: (
        x.to(torch.float64) * 3,
        x.to(torch.int64) + 1,
        x > 0,
        x.bfloat16().float(),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    check(FUNCTIONS[name], torch.randn(12, 8), rtol=1e-4, atol=1e-5)


def test_non_contiguous_and_expanded_inputs():
    check(lambda x, y: x * y + y, torch.randn(8, 12).t(), torch.randn(12, 1).expand(12, 8))


def test_input_mutation():
    def step(x, y):
        x.add_(y)
        return x * 2

    x, y = torch.randn(4, 4), torch.randn(4, 4)
    device = x.to("neuron")
    out = torch.compile(step, backend="neuron", fullgraph=True)(device, y.to("neuron"))
    torch.testing.assert_close(out.cpu(), step(x, y))
    torch.testing.assert_close(device.cpu(), x)


def test_attention_and_grouped_heads():
    q, k = torch.randn(2, 4, 10, 16), torch.randn(2, 2, 10, 16)

    def attend(q, k):
        return nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)

    with torch.no_grad():
        check(attend, q, k, rtol=1e-4, atol=1e-5)


def test_another_shape_is_another_graph_and_a_seen_one_is_reused():
    compiled_graphs = []

    def counting(gm, inputs):
        compiled_graphs.append(gm)
        return torch_neuronx.neuron_dynamo_backend.neuron_backend(gm, inputs)

    function = torch.compile(lambda x: (x * 2).sum(1), backend=counting)
    for rows in (4, 8, 16, 4, 8, 16, 4):
        x = torch.randn(rows, 3, device="neuron")
        torch.testing.assert_close(function(x).cpu(), (x.cpu() * 2).sum(1))
    assert len(compiled_graphs) == 3


def test_cpu_inputs_are_moved():
    out = torch.compile(lambda x, y: x + y, backend="neuron")(torch.ones(3), torch.ones(3))
    assert out.device.type in ("cpu", "neuron")
    assert out.cpu().tolist() == [2.0, 2.0, 2.0]


def test_dynamic_is_refused_before_compiling():
    function = torch.compile(lambda x: x + 1, backend="neuron", dynamic=True)
    with pytest.raises(Exception, match="static shapes"):
        function(torch.ones(3, device="neuron"))


def test_unknown_option_names_the_known_ones():
    function = torch.compile(lambda x: x + 1, backend="neuron", options={"fastest": True})
    with pytest.raises(Exception, match="model_name"):
        function(torch.ones(3, device="neuron"))


def test_unsupported_op_is_named():
    def function(x):
        return torch.poisson(x)  # runs on the CPU

    with pytest.raises(Exception, match="poisson"):
        torch.compile(function, backend="neuron", fullgraph=True)(torch.ones(3, 3, device="neuron"))


def test_model_name():
    set_model_name("transformer")
    assert get_model_name() == "transformer"
    with pytest.raises(ValueError, match="non-empty"):
        set_model_name("")


def test_bfloat16_is_no_farther_from_the_truth_than_eager():
    host = mlp()
    x = torch.randn(64, 32)
    truth = copy.deepcopy(host).double()(x.double())
    device = copy.deepcopy(host).to("neuron", torch.bfloat16)
    y = x.to("neuron", torch.bfloat16)
    with torch.no_grad():
        eager = device(y).cpu().double()
        compiled = torch.compile(device, backend="neuron")(y).cpu().double()
    # Fusion may only take roundings away: errors shrink, up to the luck of single ones.
    assert (compiled - truth).abs().mean() <= 1.05 * (eager - truth).abs().mean()
