"""Functional collectives are steps of a compiled program: one graph, eager mode's numbers."""

from __future__ import annotations

from collections.abc import Callable

Ranks = Callable[..., list[str]]


def test_each_collective_in_one_graph(ranks: Ranks) -> None:
    ranks(
        """
import torch.distributed._functional_collectives as fc
from torch._dynamo.utils import counters
group = dist.group.WORLD
x = torch.arange(12.0).reshape(4, 3).add(100 * rank).to("neuron")
functions = {
    "all_reduce": lambda x: fc.all_reduce(x * 2, "avg", group) + 1,
    "all_gather": lambda x: fc.all_gather_tensor(x.t() + 1, 0, group).sin(),
    "all_gather_dim": lambda x: fc.all_gather_tensor(x + 1, 1, group) * 2,
    "reduce_scatter": lambda x: fc.reduce_scatter_tensor(x + 1, "sum", 0, group).exp2(),
    "broadcast": lambda x: fc.broadcast(x + 1, 1, group) - x,
    # Rank 0 sends 1 and 3 rows, rank 1 sends 2 and 2.
    "all_to_all": lambda x: fc.all_to_all_single(
        x + 1, [1, 2] if rank == 0 else [3, 2], [1, 3] if rank == 0 else [2, 2], group) * 2,
    "coalesced": lambda x: [y + 1 for y in fc.all_reduce_coalesced([x + 1, x[0]], "max", group)],
    "gather_coalesced": lambda x: fc.all_gather_into_tensor_coalesced([x + 1, x * 2], group),
    "two": lambda x: fc.all_reduce(fc.all_reduce(x + 1, "sum", group) * 2, "min", group) + x,
}
for name, function in functions.items():
    want = torch.utils._pytree.tree_map(lambda t: t + 0, function(x))
    counters.clear()
    got = torch.compile(function, backend="neuron", fullgraph=True, dynamic=False)(x)
    # Each op rounds as in eager mode: the same bits.
    torch.testing.assert_close(got, want, rtol=0, atol=0, msg=name)
    assert counters["stats"]["unique_graphs"] == 1, (name, counters)
"""
    )


def test_training_step_is_one_graph_each_way(ranks: Ranks) -> None:
    """Tensor parallelism with a norm between the layers, whose statistics the backward keeps."""
    ranks(
        """
import torch.nn as nn
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, parallelize_module)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.LayerNorm(16),
                      nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
x = torch.randn(8, 16)
want = model(x)
want.square().mean().backward()
gradients = [p.grad.clone() for p in model.parameters()]
model.zero_grad()
plan = {"0": ColwiseParallel(), "2": RowwiseParallel(),
        "4": ColwiseParallel(), "6": RowwiseParallel()}
parallel = parallelize_module(model.to("neuron"), init_device_mesh("neuron", (size,)), plan)
counters.clear()
compiled = torch.compile(parallel, backend="neuron", fullgraph=True, dynamic=False)
got = compiled(x.to("neuron"))
got.square().mean().backward()
assert counters["neuron"]["graphs_compiled"] + counters["neuron"]["graphs_loaded"] == 2, counters
# f32 sums in another order
torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
for p, gradient in zip(model.parameters(), gradients):
    whole = p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
    torch.testing.assert_close(whole.cpu(), gradient, rtol=1e-4, atol=1e-5)
"""
    )


def test_work_beside_collectives(ranks: Ranks) -> None:
    """What a collective neither needs nor gives runs between its issue and its wait."""
    ranks(
        """
import torch.distributed._functional_collectives as fc
from torch.fx.experimental.proxy_tensor import make_fx
from torch_neuronx.neuron_dynamo_backend.partition import build_program
from torch_neuronx.neuron_dynamo_backend.program import GraphStep
group = dist.group.WORLD

def names(function, *inputs):
    gm = make_fx(function, tracing_mode="fake")(*inputs)
    program = build_program(gm, "f")
    return ["graph" if isinstance(s, GraphStep) else s.function._opname for s in program.steps]

def one(x, w):
    y = fc.all_reduce(x + 1, "sum", group)
    z = (w * 2) @ w
    return [y * 3, z.sin()]

def two(x, w):
    a = fc.all_reduce(x @ w, "sum", group)
    b = fc.all_gather_tensor(x + 1, 0, group)
    c = fc.all_reduce(a * 2, "max", group)
    return [b + 1, c + 1, (w @ w) @ w, w + 1]

x, w = torch.randn(8, 8, device="neuron"), torch.randn(8, 8, device="neuron")
got = names(one, x, w)
assert got == ["graph", "all_reduce", "graph", "wait_tensor", "graph"], got
got = names(two, x, w)
assert got[:5] == ["graph", "all_reduce", "all_gather_into_tensor", "graph", "wait_tensor"], got
for function in (one, two):
    compiled = torch.compile(function, backend="neuron", fullgraph=True, dynamic=False)
    for a, b in zip(compiled(x, w), function(x, w)):
        torch.testing.assert_close(a, b + 0, rtol=0, atol=0)
"""
    )
