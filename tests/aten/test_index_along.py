"""Writing along a dimension, beyond OpInfo: other dtypes, bad and negative indices."""

from __future__ import annotations

import pytest
import torch

import torch_neuronx

DTYPES = (torch.float16, torch.float64, torch.int32, torch.int8, torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_follow_cpu(dtype):
    torch_neuronx.clear_op_tracking()
    x = torch.arange(20).reshape(4, 5).to(dtype)
    source = torch.arange(10).reshape(2, 5).to(dtype)
    index = torch.tensor([3, 0])
    dx, ds, di = x.to("neuron"), source.to("neuron"), index.to("neuron")
    for actual, expected in (
        (torch.index_add(dx, 0, di, ds, alpha=2), torch.index_add(x, 0, index, source, alpha=2)),
        (torch.index_copy(dx, 0, di, ds), torch.index_copy(x, 0, index, source)),
        (torch.index_fill(dx, 1, di, 3), torch.index_fill(x, 1, index, 3)),
        (torch.roll(dx, 7), torch.roll(x, 7)),
    ):
        torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0)
    assert torch_neuronx.get_fallback_ops() == []


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
def test_scatter_reduce_with_repeated_indices(reduce, include_self):
    x = torch.arange(20).reshape(4, 5)
    source = torch.arange(10).reshape(2, 5) - 4
    index = torch.tensor([[0, 1, 1, 0, 2], [0, 3, 1, 3, 2]])
    expected = torch.scatter_reduce(x, 0, index, source, reduce, include_self=include_self)
    args = [t.to("neuron") for t in (x, index, source)]
    actual = torch.scatter_reduce(args[0], 0, *args[1:], reduce, include_self=include_self)
    assert torch.equal(actual.cpu(), expected)


def test_negative_indices_of_index_fill_count_from_the_end():
    x = torch.zeros(4, 3, device="neuron")
    index = torch.tensor([-1, 0], device="neuron")
    expected = torch.index_fill(x.cpu(), 0, index.cpu(), 2.0)
    assert torch.equal(torch.index_fill(x, 0, index, 2.0).cpu(), expected)
    assert torch.equal(x.index_fill_(0, index, torch.tensor(2.0, device="neuron")).cpu(), expected)


@pytest.mark.parametrize("bad", [4, -5])
def test_indices_out_of_range(bad):
    x = torch.zeros(4, 3, device="neuron")
    index = torch.tensor([bad], device="neuron")
    source = torch.ones(1, 3, device="neuron")
    for call in (
        lambda: torch.index_add(x, 0, index, source),
        lambda: torch.index_copy(x, 0, index, source),
        lambda: torch.index_fill(x, 0, index, 1.0),
    ):
        with pytest.raises(IndexError, match="out of bounds"):
            call().cpu()
