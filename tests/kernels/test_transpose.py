"""Copies that reorder dimensions, bit by bit as copy_ does it, on every instruction set."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_neuronx import _C

kernels = _C.kernels
ISAS = kernels.available_isas()
DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def permute(source, out, isa=""):
    return kernels.permute(
        source.element_size(),
        list(source.shape),
        source.data_ptr(),
        list(source.stride()),
        out.data_ptr(),
        list(out.stride()),
        isa,
    )


def check(source, out, isa=""):
    out.fill_(7)
    assert permute(source, out, isa)
    assert torch.equal(out, source)


def noise(shape, dtype):
    return torch.randint(torch.iinfo(dtype).min, torch.iinfo(dtype).max, shape, dtype=dtype)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", DTYPES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_permutation_with_gaps(isa, size, data):
    rank = data.draw(st.integers(2, 5))
    limit = 140 if rank == 2 else 40 if rank == 3 else 9
    shape = data.draw(st.lists(st.integers(1, limit), min_size=rank, max_size=rank))
    gaps = data.draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank))
    order = data.draw(st.permutations(range(rank)))
    padded = [n + gap for n, gap in zip(shape, gaps, strict=True)]
    source = noise(padded, DTYPES[size])[tuple(slice(n) for n in shape)].permute(order)
    whole = torch.full([n + 2 for n in source.shape], 7, dtype=source.dtype)
    out = whole[tuple(slice(1, n + 1) for n in source.shape)]
    if permute(source, out, isa):
        assert torch.equal(out, source)
        out.fill_(7)
        assert whole.eq(7).all(), "written beyond the result"
    else:
        assert whole.eq(7).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", DTYPES)
@pytest.mark.parametrize(
    "shape,order",
    [
        ((1024, 300), (1, 0)),
        ((2, 5, 77, 64), (0, 2, 1, 3)),
        ((2, 33, 9, 17), (0, 2, 3, 1)),
        ((2, 9, 17, 33), (0, 3, 1, 2)),
        ((130, 4, 130), (2, 1, 0)),
    ],
)
def test_models(isa, size, shape, order):
    source = noise(shape, DTYPES[size]).permute(order)
    check(source, torch.empty(source.shape, dtype=source.dtype), isa)


def test_a_broadcast_source_is_read_again():
    source = noise((1, 40, 50), torch.int32).expand(3, 40, 50).transpose(1, 2)
    check(source, torch.empty(3, 50, 40, dtype=torch.int32))


def test_says_what_it_does_not_do():
    x = torch.zeros(64, 64)
    assert not permute(x[::2, ::2], torch.empty(32, 32))  # nothing lies contiguously
    assert not permute(x[:0], torch.empty(0, 64))
    assert not kernels.permute(16, [8, 8], 0, [8, 1], 0, [1, 8])
