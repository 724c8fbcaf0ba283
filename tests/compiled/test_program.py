"""What torch.compile accepts besides plain inference: inputs, outputs and control flow."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from torch_neuronx.neuron_dynamo_backend import partition


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    torch.manual_seed(0)


def to(device, values):
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), values)


def check(function, *inputs, fullgraph=True, rtol=1e-5, atol=1e-5):
    """Compiled on the device gives what eager gives on the CPU."""
    expected = function(*copy.deepcopy(inputs))
    compiled = torch.compile(function, backend="neuron", fullgraph=fullgraph)
    actual = compiled(*to("neuron", inputs))
    torch.testing.assert_close(to("cpu", actual), expected, rtol=rtol, atol=atol)


def test_graph_without_outputs():
    x = torch.zeros(3, device="neuron")

    def add(x):
        x.add_(1)

    torch.compile(add, backend="neuron", fullgraph=True)(x)
    assert x.tolist() == [1, 1, 1]


def test_none_and_python_outputs():
    compiled = torch.compile(lambda x: (x + 1, None, 3, "s"), backend="neuron", fullgraph=True)
    out = compiled(torch.zeros(2, device="neuron"))
    assert out[0].tolist() == [1, 1] and out[1:] == (None, 3, "s")


def test_outputs_that_are_inputs():
    x = torch.randn(3, device="neuron")
    out = torch.compile(lambda x, y: (x, y + 1, x), backend="neuron", fullgraph=True)(x, x)
    assert out[0] is x and out[2] is x


def test_outputs_that_are_views_share_memory():
    x = torch.randn(4, 4, device="neuron")
    views = torch.compile(lambda x: (x[1:], x.t(), x.view(-1)), backend="neuron")(x)
    views[0].zero_()
    assert x[1:].abs().sum() == 0 and x[0].abs().sum() > 0
    assert views[1].stride() == (1, 4)


def test_outputs_that_other_outputs_are_computed_from():
    """One kernel writes them all; it reads none from memory that it has yet to write."""

    def norm(x):
        mean = x.mean(1, keepdim=True)
        scale = (x - mean).square().mean(1, keepdim=True).add(1e-5).rsqrt()
        return mean, scale, (x - mean) * scale

    junk = [torch.full((8, 16), 7.0, device="neuron") for _ in range(40)]
    del junk  # the outputs' memory does not hold by chance what they should be
    check(norm, torch.randn(8, 16))


def test_views_of_intermediates():
    check(lambda x: ((x + 1).t(), (x + 1)[::2]), torch.randn(4, 4))


@pytest.mark.parametrize("number", [2.5, 7, True])
def test_python_numbers(number):
    check(lambda x, s: x * s + x.shape[0], torch.randn(3), number)


def test_cpu_scalar_tensor():
    x = torch.randn(3)
    scale = torch.tensor(2.5)
    out = torch.compile(lambda x, s: x * s, backend="neuron", fullgraph=True)(x.to("neuron"), scale)
    torch.testing.assert_close(out.cpu(), x * scale)


def test_graph_breaks():
    def broken(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos() if y.sum() > 0 else y

    check(broken, torch.rand(4), fullgraph=False)
    check(broken, -torch.rand(4), fullgraph=False)


def test_item_breaks_the_graph():
    check(lambda x: x * x.sum().item(), torch.ones(4), fullgraph=False)


def test_no_grad_inside():
    layer = nn.Linear(4, 4).to("neuron")

    def forward(x):
        with torch.no_grad():
            y = layer(x)
        return y * 2

    x = torch.randn(2, 4, device="neuron")
    out = torch.compile(forward, backend="neuron", fullgraph=True)(x)
    assert not out.requires_grad
    torch.testing.assert_close(out, forward(x))


def test_autocast_inside():
    layer = nn.Linear(64, 64).to("neuron")
    x = torch.randn(8, 64, device="neuron")

    def forward(x):
        with torch.autocast("neuron", dtype=torch.bfloat16):
            return layer(x)

    out = torch.compile(forward, backend="neuron", fullgraph=True)(x)
    assert out.dtype == torch.bfloat16
    # One product, rounded once in both.
    torch.testing.assert_close(out, forward(x), rtol=0, atol=0)


def test_autocast_around_training():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to("neuron")
    eager = copy.deepcopy(model)
    x = torch.randn(8, 64, device="neuron")
    for m in (model, eager):
        run = torch.compile(m, backend="neuron") if m is model else m
        with torch.autocast("neuron", dtype=torch.bfloat16):
            loss = run(x).float().square().mean()
        loss.backward()
    for a, b in zip(model.parameters(), eager.parameters(), strict=True):
        # bf16 products: eager rounds between the ops of the backward, the graph does not.
        torch.testing.assert_close(a.grad, b.grad, rtol=0.05, atol=2e-3)


def test_checkpoint():
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
    device = copy.deepcopy(model).to("neuron")
    x = torch.randn(4, 16)

    def loss_of(m):
        return lambda x: checkpoint(m, x, use_reentrant=False).sin().sum()

    loss_of(model)(x).backward()
    torch.compile(loss_of(device), backend="neuron", fullgraph=True)(x.to("neuron")).backward()
    for a, b in zip(model.parameters(), device.parameters(), strict=True):
        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sign", [1, -1])
def test_cond(sign):
    def forward(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos(), (x,))

    check(forward, sign * torch.rand(4))


def test_map():
    from functorch.experimental.control_flow import map as hop_map

    check(lambda x: hop_map(lambda a: a.sin() + 1, x), torch.randn(4, 3))


def test_while_loop():
    from torch._higher_order_ops.while_loop import while_loop

    def forward(x):
        start = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (start, x))

    check(forward, torch.randn(4))


def test_scan():
    from torch._higher_order_ops.scan import scan

    check(
        lambda x: scan(lambda c, a: (c + a, c * a), torch.zeros(3, device=x.device), x),
        torch.randn(4, 3),
    )


def test_a_branch_is_compiled(steps):
    check(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x + 1,)), torch.rand(4))
    # Two branches; the test, the call, and taking its result apart.
    assert sorted(steps, key=len) == [["graph"], ["graph"], ["graph", "call", "call"]]


def test_ops_between_executables_run_in_order(steps, monkeypatch):
    """An op that only eager mode has cuts the graph; random ones keep their order."""
    lowered = partition.in_table
    names = {"aten.sort.default", "aten.normal_functional.default", "aten.atan.default"}
    monkeypatch.setattr(partition, "in_table", lambda n: str(n.target) not in names and lowered(n))

    def forward(x):
        y = (x * 2).atan() + 1
        return y.atan() * x, y

    check(forward, torch.randn(8))
    assert steps == [["graph", "call", "graph", "call", "graph"]]


def test_an_op_that_eager_sends_to_the_cpu_is_refused(monkeypatch, building):
    lowered = partition.in_table
    monkeypatch.setattr(
        partition, "in_table", lambda n: str(n.target) != "aten.atan.default" and lowered(n)
    )
    monkeypatch.setattr(partition, "runs_natively", lambda n: False)
    with pytest.raises(Exception, match="cannot compile aten.atan.default.*no lowering"):
        torch.compile(torch.atan, backend="neuron")(torch.zeros(2, device="neuron"))


def run_python(code, **env):
    """In a process of its own: environment variables are read once."""
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True
    )


def test_fallback_execution_is_visible_and_has_to_be_allowed():
    code = """
import torch, torch_neuronx
out = torch.compile(lambda x: torch.poisson((x + 1) * 0) + x * 2, backend="neuron")(
    torch.arange(4.0, device="neuron"))
print(out.cpu().tolist(), torch_neuronx.get_fallback_ops())
"""
    refused = run_python(code)
    assert refused.returncode != 0
    assert "cannot compile aten.poisson" in refused.stderr
    assert "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION=0" in refused.stderr
    allowed = run_python(code, TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION="0")
    assert allowed.returncode == 0, allowed.stderr
    assert "[0.0, 2.0, 4.0, 6.0]" in allowed.stdout and "poisson" in allowed.stdout
    assert "runs on the CPU" in allowed.stderr


def test_cpu_inputs_can_be_forbidden():
    code = """
import torch
f = torch.compile(lambda x, s: x * s, backend="neuron")
print(f(torch.ones(2, device="neuron"), torch.tensor(3.0)).tolist())
f(torch.ones(2), torch.ones(2))
"""
    forbidden = run_python(code, TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY="1")
    assert "[3.0, 3.0]" in forbidden.stdout  # numbers are no data
    assert forbidden.returncode != 0 and "shape (2,) on cpu" in forbidden.stderr


def test_vmap():
    check(lambda x: torch.vmap(lambda a: a.sin().sum())(x), torch.randn(3, 4))


def test_nested_containers():
    check(lambda d: {"a": [d["x"] + 1, (d["y"],)]}, {"x": torch.randn(3), "y": torch.ones(2)})


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), ()])
def test_empty_and_0_dim(shape):
    check(lambda x: (x + 1, x.sum(), x.reshape(-1)), torch.randn(shape))


def test_writing_through_a_view_of_an_input():
    def forward(x):
        x[:, 0].mul_(3)
        return x + 0

    x = torch.ones(3, 3, device="neuron")
    out = torch.compile(forward, backend="neuron", fullgraph=True)(x)
    assert x[:, 0].tolist() == [3, 3, 3] and torch.equal(out, x)


def left(values):
    out = values[0]
    for v in values[1:]:
        out = out + v
    return out


def right(values):
    out = values[-1]
    for v in reversed(values[:-1]):
        out = v * 0.5 + out
    return out


def tree(values):
    while len(values) > 1:
        odd = values[len(values) // 2 * 2 :]
        values = [a.sin() + b for a, b in zip(values[::2], values[1::2], strict=False)] + odd
    return values[0]


@pytest.mark.parametrize(
    "combine",
    [left, right, tree, lambda v: left(v).softmax(-1), lambda v: torch.stack(v).sum(0)],
    ids=["left", "right", "tree", "softmax", "stack"],
)
def test_more_inputs_than_a_kernel_has_operands(combine):
    # Sums of 150 terms in another order than eager's.
    values = [torch.randn(3, 5) for _ in range(150)]
    check(lambda *v: combine(list(v)), *values, rtol=1e-4, atol=1e-4)


def test_more_outputs_than_a_kernel_has_operands():
    check(lambda x: [x + i for i in range(100)], torch.randn(3))


def test_index_assignment_and_cache_update():
    def assign(x, i, v):
        x = x.clone()
        x[i] = v
        return x

    check(assign, torch.zeros(5, 3), torch.tensor([0, 2]), torch.randn(2, 3))

    def update(cache, position, value):
        cache.index_copy_(1, position, value)
        return cache.sum(1)

    check(update, torch.zeros(2, 5, 3), torch.tensor([2]), torch.randn(2, 1, 3))
