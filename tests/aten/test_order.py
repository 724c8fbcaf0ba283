"""Sorting, running sums and indexed assignment, where OpInfo's samples say too little."""

from __future__ import annotations

import pytest
import torch

import torch_neuronx

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
DTYPES = [*FLOATS, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool]
SHAPES = [(7,), (5, 600), (3, 4, 9), (2, 0, 3), ()]


@pytest.fixture(autouse=True)
def no_fallback():
    torch.manual_seed(0)
    torch_neuronx.clear_op_tracking()
    yield
    assert torch_neuronx.get_fallback_ops() == []


def check(function, *inputs, **tolerance):
    """The device gives what the CPU gives; inputs are copied, so that functions may write them."""
    expected = function(*[x.clone() for x in inputs])
    actual = function(*[x.clone().to("neuron") for x in inputs])
    actual = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), actual)
    torch.testing.assert_close(actual, expected, equal_nan=True, **tolerance)


def values(shape, dtype):
    x = (torch.randn(shape) * 20).abs().to(dtype) if dtype == torch.uint8 else None
    x = (torch.randn(shape) * 20).to(dtype) if x is None else x
    if dtype.is_floating_point and x.numel() > 5:
        x.view(-1)[2:5] = torch.tensor([-0.0, float("nan"), float("-inf")])
    return x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_stable_sort(dtype, shape):
    x = values(shape, dtype)
    for dim in range(-1, max(len(shape) - 1, 0)):
        for descending in (False, True):
            options = {"dim": dim, "descending": descending, "stable": True}
            check(lambda x, o=options: torch.sort(x, **o), x)
            check(lambda x, o=options: torch.argsort(x, **o), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_running_sums(dtype, shape):
    # Both sides add in another precision than they store; one rounding of the dtype may differ.
    x = torch.nan_to_num(values(shape, dtype).float(), neginf=0.0).div(50).to(dtype)
    for dim in range(-1, max(len(shape) - 1, 0)):
        check(lambda x, d=dim: torch.cumsum(x, d), x)
        check(lambda x, d=dim: torch.cumprod(x, d), x)
    check(lambda x: torch.cumsum(x, 0, dtype=torch.float64), x)


@pytest.mark.parametrize("k", [0, 1, 7, 500])
@pytest.mark.parametrize("largest", [True, False])
def test_topk(k, largest):
    x = torch.randperm(2000).float().view(4, 500)  # without ties
    check(lambda x: x.topk(k, dim=-1, largest=largest), x)
    check(lambda x: x.t().contiguous().topk(k, dim=0, largest=largest), x)
    check(lambda x: x.t().topk(min(k, 4), dim=1, largest=largest), x)


def test_topk_with_ties_takes_the_right_values():
    x = torch.randint(0, 5, (6, 100)).to("neuron")
    result = x.topk(10)
    assert torch.equal(result.values.cpu(), x.cpu().topk(10).values)
    assert torch.equal(x.gather(1, result.indices).cpu(), result.values.cpu())


def test_topk_out_of_range():
    with pytest.raises(RuntimeError, match="range"):
        torch.zeros(3, device="neuron").topk(4)


ROWS, COLUMNS = torch.tensor([1, 4, 1]), torch.tensor([0, 2, -1])
PUTS = {
    "first": ([ROWS], (3, 6, 7)),
    "first two": ([ROWS, COLUMNS], (3, 7)),
    "second": ([None, COLUMNS], (5, 3, 7)),
    "last": ([None, None, COLUMNS], (5, 6, 3)),
    "apart": ([ROWS, None, COLUMNS], (3, 6)),
    "broadcast": ([ROWS[:, None], COLUMNS], (3, 3, 7)),
    "one value": ([ROWS, COLUMNS], ()),
}


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("name", PUTS)
def test_index_put(name, accumulate):
    indices, shape = PUTS[name]

    def put(x, v):
        at = [None if i is None else i.to(x.device) for i in indices]
        return torch.ops.aten.index_put_(x, at, v, accumulate)

    if not accumulate and name == "first":
        shape = (1, 6, 7)  # index 1 comes twice, and who wins is nobody's promise
    if not accumulate and name in ("second", "last", "broadcast", "apart"):
        indices = [None if i is None else torch.tensor([0, 2, 3]).view(i.shape) for i in indices]
    check(put, torch.randn(5, 6, 7), torch.randn(shape))


def test_assignment_through_masks_and_slices():
    x = torch.randn(5, 6, 7)

    def fill(x):
        x[x > 0.5] = 0
        return x

    def fill_rows(x):
        x[x.sum((1, 2)) > 0] = 1.5
        return x

    def assign(x):
        mask = x > 0.5
        x[mask] = torch.arange(int(mask.sum()), device=x.device).float()
        return x

    def slices(x):
        x[1:3, :, 2] = x[2:4, :, 3]
        x[:, [1, 2]] = 5
        x[..., -1] += 1
        return x

    for function in (fill, fill_rows, assign, slices):
        check(function, x)


def test_index_put_out_of_range():
    x = torch.zeros(3, device="neuron")
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension.*size 3"):
        x[torch.tensor([5], device="neuron")] = 1.0
        torch.neuron.synchronize()
