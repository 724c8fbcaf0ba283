"""Ops that a library computes on the core's own memory: values, order, errors, counters."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten

import torch_neuronx
from tests.aten.test_opinfo import full_name, to_device
from torch_neuronx import _C

# One or more ops of each family of the table, by their OpInfo names. The results are those of the
# same code on the same bytes, so that even decompositions that are not unique agree.
NAMES = {
    "linalg.inv_ex",
    "linalg.qr",
    "linalg.svd",
    "linalg.eigh",
    "linalg.solve_ex",
    "linalg.lu_factor_ex",
    "linalg.lstsq",
    "linalg.solve_triangular",
    "cholesky",
    "cdist",
    "vdot",
    "fft.fft2",
    "fft.irfft",
    "fft.rfftn",
    "unique",
    "unique_consecutive",
    "bincount",
    "histc",
    "histogram",
    "median",
    "mode",
    "cummax",
    "repeat_interleave",
    "searchsorted",
    "bucketize",
    "take",
    "put",
    "masked_scatter",
    "index_reduce.mean",
    "special.i1e",
    "special.zeta",
    "frexp",
    "gcd",
    "nn.functional.avg_pool2d",
    "nn.functional.max_pool2d",
    "nn.functional.adaptive_max_pool3d",
    "nn.functional.interpolate.bicubic",
    "nn.functional.grid_sample",
    "nn.functional.pad.reflect",
    "nn.functional.unfold",
    "nn.functional.ctc_loss",
    "nn.functional.embedding_bag",
    "nan_to_num",
    "count_nonzero",
    "polar",
}
# Ops with a lowering, whose complex numbers the library computes.
COMPLEX = {"add", "div.no_rounding_mode", "exp", "abs", "matmul", "sum", "conj"}

OPS = [op for op in op_db if full_name(op) in NAMES | COMPLEX]


def test_names_are_known():
    assert {full_name(op) for op in OPS} == NAMES | COMPLEX


def cases():
    for op in OPS:
        dtypes = [torch.complex64] if full_name(op) in COMPLEX else [torch.float32, torch.int64]
        for dtype in dtypes:
            if dtype in op.supported_dtypes("cpu"):
                yield pytest.param(op, dtype, id=f"{full_name(op)}-{str(dtype)[6:]}")


def assert_same(actual, expected):
    got, want = tree_flatten(actual)[0], tree_flatten(expected)[0]
    assert len(got) == len(want)
    for a, e in zip(got, want, strict=True):
        if not isinstance(e, torch.Tensor):
            assert a == e
            continue
        assert a.device.type == "neuron"
        # The same code on the same numbers; where their addresses are aligned and how many threads
        # it takes decide which of its loops it uses: a few ULP.
        torch.testing.assert_close(a.cpu(), e, rtol=2e-5, atol=2e-5, equal_nan=True)


@pytest.mark.parametrize(("op", "dtype"), list(cases()))
def test_matches_cpu(op, dtype):
    torch_neuronx.clear_op_tracking()
    count = 0
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
        if number == 200:
            break
        args, kwargs = to_device((sample.args, sample.kwargs))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = op(sample.input, *sample.args, **sample.kwargs)
            actual = op(to_device(sample.input), *args, **kwargs)
        assert_same(actual, expected)
        count += 1
    assert count > 0
    assert torch_neuronx.get_fallback_ops() == []
    if full_name(op) not in {"conj", "cdist", "repeat_interleave"}:  # of samples with other paths
        assert torch_neuronx.get_library_ops()


def test_every_row_of_the_table_has_a_kernel():
    missing = []
    for name, _ in _C.compiler.library_ops():
        base, _, overload = name.partition(".")
        forms = [
            form
            for form in torch._C._dispatch_get_all_op_names()
            if form.partition(".")[0] == f"aten::{base}"
        ]
        assert any(form.partition(".")[2] == overload for form in forms), name
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        if not any(has(form, "PrivateUse1") for form in forms):
            missing.append(name)
    assert missing == []


def test_work_stays_in_queue_order():
    # The library reads what was queued before it and what is queued after it reads its result.
    x = torch.eye(96) + torch.rand(96, 96, generator=torch.Generator().manual_seed(0)) / 96
    device = x.to("neuron")
    torch.neuron.synchronize()
    _C.device.sleep(20_000_000)
    inverse = torch.linalg.inv_ex(device * 2)[0]
    device.zero_()
    product = inverse @ (2 * x).to("neuron")
    torch.testing.assert_close(product.cpu(), torch.eye(96), rtol=1e-4, atol=1e-4)


def test_strided_operands_and_results():
    x = torch.rand(6, 8, generator=torch.Generator().manual_seed(0))
    device = x.to("neuron")
    out = torch.empty(8, 6, device="neuron").t()
    torch.special.i0(device, out=out)
    assert out.stride() == (1, 6)
    assert torch.equal(out.cpu(), torch.special.i0(x))
    assert torch.equal(
        torch.special.i1(device[::2, 1:].t()).cpu(), torch.special.i1(x[::2, 1:].t())
    )
    resized = torch.empty(0, device="neuron")
    torch.special.i0(device, out=resized)
    assert torch.equal(resized.cpu(), torch.special.i0(x))


def test_out_of_an_op_whose_shape_follows_from_data():
    x = torch.rand(20, generator=torch.Generator().manual_seed(0))
    out = (torch.empty(0, device="neuron"), torch.empty(0, device="neuron"))
    torch.histogram(x.to("neuron"), 5, out=out)
    for actual, expected in zip(out, torch.histogram(x, 5), strict=True):
        assert torch.equal(actual.cpu(), expected)


def test_failures_name_the_op_and_the_place():
    with pytest.raises(RuntimeError, match=r"non-negative(.|\n)*aten::bincount(.|\n)*test_library"):
        torch.bincount(torch.tensor([-1], device="neuron"))
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.inv(torch.zeros(3, 3, device="neuron"))
    bad = torch.tensor([7], device="neuron")
    with pytest.raises(IndexError, match="out of range"):
        torch.take(torch.zeros(3, device="neuron"), bad).cpu()
    assert torch.equal(torch.take(torch.ones(8, device="neuron"), bad).cpu(), torch.ones(1))


def test_callers_number_of_threads_is_kept():
    before = torch.get_num_threads()
    torch.special.i0(torch.ones(4, device="neuron")).cpu()  # small: runs in this thread
    assert torch.get_num_threads() == before


def test_calls_are_counted_and_cleared():
    torch_neuronx.clear_op_tracking()
    torch.special.i0(torch.ones(4, device="neuron"))
    (name,) = torch_neuronx.get_library_ops()
    assert name.startswith("aten::i0")
    assert name in torch_neuronx.get_executed_ops()
    torch_neuronx.clear_op_tracking()
    assert torch_neuronx.get_library_ops() == {}
