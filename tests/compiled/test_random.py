"""Random ops in compiled graphs draw what eager mode draws under the same seed."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


FUNCTIONS = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout twice": lambda x: F.dropout(F.dropout(x, 0.3) + 1, 0.5),
    "dropout of nothing": lambda x: F.dropout(x, 0.0),
    "no training": lambda x: F.dropout(x, 0.5, training=False),
    "like": lambda x: x + torch.rand_like(x) + torch.randn_like(x),
    "new": lambda x: x + torch.rand(7, device=x.device) * torch.randn(33, 1, device=x.device),
    "in place": lambda x: (
        torch.empty_like(x).uniform_(-1, 2)
        + torch.empty_like(x).normal_(1, 3)
        + torch.empty_like(x).bernoulli_(0.3)
    ),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "exponential": lambda x: torch.empty_like(x).exponential_(2.0),
    "attention": lambda x: F.scaled_dot_product_attention(*[x[None, None]] * 3, dropout_p=0.2),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_numbers_as_eager(name, dtype):
    function = FUNCTIONS[name]
    x = torch.randn(33, 7, device="neuron", dtype=dtype)
    compiled = torch.compile(function, backend="neuron", fullgraph=True)
    results = []
    for run in (function, compiled):
        torch.manual_seed(3)
        results.append([run(x), run(x), torch.neuron.get_rng_state()])
    exact = dtype == torch.float32 or name not in ("like", "new", "in place")
    for eager, graph in zip(*results, strict=True):
        if exact:
            # Draws are exact; what is computed from them may be contracted to one rounding.
            torch.testing.assert_close(graph, eager, rtol=1e-6, atol=1e-6)
        else:
            # Eager rounds each op's result to bf16, the graph only the last one.
            torch.testing.assert_close(graph, eager, rtol=0.02, atol=0.05)


def test_calls_differ_and_the_seed_repeats_them():
    drop = torch.compile(lambda x: F.dropout(x, 0.5), backend="neuron")
    x = torch.ones(200, device="neuron")
    torch.manual_seed(1)
    first, second = drop(x), drop(x)
    torch.manual_seed(1)
    assert not torch.equal(first.cpu(), second.cpu())
    assert torch.equal(first.cpu(), drop(x).cpu())
    assert set(first.cpu().unique().tolist()) == {0.0, 2.0}


def test_backward_uses_the_forward_mask():
    x = torch.randn(100, device="neuron", requires_grad=True)
    out = torch.compile(lambda x: F.dropout(x, 0.4), backend="neuron", fullgraph=True)(x)
    out.sum().backward()
    kept = out.detach().cpu() != 0
    expected = kept / 0.6
    torch.testing.assert_close(x.grad.cpu(), expected.float())
    assert 20 < kept.sum() < 95


def test_checkpoint_recomputes_with_the_same_numbers():
    """The mask of the recomputed forward is the mask of the first."""
    block = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5)).to("neuron")
    x = torch.randn(8, 16, device="neuron", requires_grad=True)

    def forward(x):
        return checkpoint(block, x, use_reentrant=False)

    torch.manual_seed(0)
    out = torch.compile(forward, backend="neuron", fullgraph=True)(x)
    (out * out).sum().backward()
    kept = (out.detach() != 0).float()
    weight = block[0].weight.detach()
    # d(out^2)/dx = (2 out * mask / (1 - p)) W: right only if the backward has the forward's mask.
    expected = (2 * out.detach() * kept * 2) @ weight
    torch.testing.assert_close(x.grad, expected, rtol=1e-5, atol=1e-5)
