"""The Klein pipeline's ops, and what shares their lowerings, against PyTorch CPU over OpInfo."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

import torch_neuronx
from tests.aten.op_cases import (
    ALLOWED_FALLBACKS,
    DTYPES,
    DTYPES_DIFFER,
    FACTORIES,
    KLEIN,
    MORE,
    SKIP,
    STRIDES_DIFFER,
    TOLERANCE,
)

NAMES = set(KLEIN) | set(MORE)
OPS = [
    op
    for op in op_db
    if (op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")) in NAMES
]


def full_name(op):
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def cases():
    for op in OPS:
        for dtype in DTYPES:
            if dtype in op.supported_dtypes("cpu"):
                yield pytest.param(op, dtype, id=f"{full_name(op)}-{str(dtype)[6:]}")


def to_device(value):
    """On the device with the same strides and the same aliasing of one tensor with itself."""

    def move(x):
        if isinstance(x, torch.Tensor):
            span = (
                sum((s - 1) * st for s, st in zip(x.size(), x.stride(), strict=True)) + 1
                if x.numel()
                else 0
            )
            flat = x.detach().as_strided((span,), (1,), x.storage_offset()).to("neuron")
            return flat.as_strided(x.size(), x.stride())
        if isinstance(x, torch.device) or (isinstance(x, str) and x == "cpu"):
            return torch.device("neuron")
        return x

    return tree_map(move, value)


def assert_same(actual, expected, op, dtype, strides=True):
    got, _ = tree_flatten(actual)
    want, _ = tree_flatten(expected)
    assert len(got) == len(want)
    for a, e in zip(got, want, strict=True):
        if not isinstance(e, torch.Tensor):
            assert a == e
            continue
        assert a.device.type == "neuron"
        if full_name(op) not in DTYPES_DIFFER:
            assert a.dtype == e.dtype
        assert a.shape == e.shape
        if strides and full_name(op) not in STRIDES_DIFFER:
            assert a.stride() == e.stride()
        rtol, atol = TOLERANCE.get(e.dtype, (0, 0))
        torch.testing.assert_close(a.cpu().to(e.dtype), e, rtol=rtol, atol=atol, equal_nan=True)


def assert_native(op):
    assert set(torch_neuronx.get_fallback_ops()) <= ALLOWED_FALLBACKS.get(full_name(op), set())


def test_names_are_known():
    found = {full_name(op) for op in OPS}
    assert NAMES - found == set()


@pytest.mark.parametrize(("op", "dtype"), cases())
def test_matches_cpu(op, dtype):
    skipped, reason = SKIP.get(full_name(op), ((), ""))
    if skipped is None or dtype in skipped:
        pytest.skip(reason)
    torch_neuronx.clear_op_tracking()
    torch.manual_seed(0)
    count = 0
    for sample in op.sample_inputs("cpu", dtype, requires_grad=False):
        args, kwargs = to_device((sample.args, sample.kwargs))
        if op.name in FACTORIES:
            kwargs["device"] = "neuron"
        moved = to_device(sample.input)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = op(sample.input, *sample.args, **sample.kwargs)
            except (RuntimeError, TypeError, ValueError, IndexError) as error:
                with pytest.raises(type(error)):
                    op(moved, *args, **kwargs)
                continue
            assert_same(op(moved, *args, **kwargs), expected, op, dtype)
        count += 1
    assert count > 0
    assert_native(op)


@pytest.mark.parametrize(
    ("op", "dtype"), [c for c in cases() if c.values[0].supports_out and c.values[1] != torch.bool]
)
def test_out_form(op, dtype):
    skipped, reason = SKIP.get(full_name(op), ((), ""))
    if skipped is None or dtype in skipped:
        pytest.skip(reason)
    torch_neuronx.clear_op_tracking()
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
        if number == 6:
            break
        expected = op(sample.input, *sample.args, **sample.kwargs)
        if not isinstance(expected, torch.Tensor):
            continue
        args, kwargs = to_device((sample.args, sample.kwargs))
        moved = to_device(sample.input)
        out = torch.empty_like(expected, device="neuron")
        returned = op(moved, *args, **kwargs, out=out)
        assert returned is out
        assert_same(out, expected, op, dtype)
        # Another layout is kept, a wrong shape is made right.
        if expected.dim() >= 2:
            transposed = torch.empty_like(
                expected.transpose(0, 1).contiguous(), device="neuron"
            ).transpose(0, 1)
            stride = transposed.stride()
            try:
                host = torch.empty_like(expected.transpose(0, 1).contiguous()).transpose(0, 1)
                op(sample.input, *sample.args, **sample.kwargs, out=host)
            except RuntimeError:  # matmul's composition cannot fold such an out= on any device
                with pytest.raises(RuntimeError):
                    op(moved, *args, **kwargs, out=transposed)
            else:
                op(moved, *args, **kwargs, out=transposed)
                assert transposed.stride() == stride
                assert_same(transposed, expected, op, dtype, strides=False)
        resized = torch.empty(0, dtype=expected.dtype, device="neuron")
        op(moved, *args, **kwargs, out=resized)
        assert_same(resized, expected, op, dtype, strides=False)
    assert_native(op)


@pytest.mark.parametrize(
    ("op", "dtype"), [c for c in cases() if c.values[0].inplace_variant is not None]
)
def test_in_place_form(op, dtype):
    skipped, reason = SKIP.get(full_name(op), ((), ""))
    if skipped is None or dtype in skipped:
        pytest.skip(reason)
    torch_neuronx.clear_op_tracking()
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
        if number == 8:
            break
        if sample.broadcasts_input:
            continue
        args, kwargs = to_device((sample.args, sample.kwargs))
        moved = to_device(sample.input.clone())
        mine = sample.input.clone()
        try:
            expected = op.inplace_variant(mine, *sample.args, **sample.kwargs)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                op.inplace_variant(moved, *args, **kwargs)
            continue
        returned = op.inplace_variant(moved, *args, **kwargs)
        assert returned is moved
        assert_same(moved, expected, op, dtype, strides=False)
    assert_native(op)
