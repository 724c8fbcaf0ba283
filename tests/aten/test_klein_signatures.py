"""The 66 ATen overloads of the FLUX.2-klein pipeline, with shapes, strides, dtypes of real models.

``tests/data/klein_ops.tsv`` holds, per overload, dtypes and sample signatures such as
``bf16[1,4,512,8]/st[16384,8,32,1]`` (strides), ``f32[1,32,8,8]cl`` (channels last), ``...+off``
(a storage offset).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import torch_neuronx

DTYPES = {
    "b8": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i32": torch.int32,
    "i64": torch.int64,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "c64": torch.complex64,
    "c128": torch.complex128,
}
TENSOR = re.compile(
    r"(b8|u8|i8|i32|i64|bf16|f32|f64|c64|c128)\[([\d,]*)\](/st\[[\d,]*\])?(cl)?(\+off)?(@\w+)?"
)
ROWS = [
    line.rstrip("\n").split("\t")
    for line in (Path(__file__).parents[1] / "data/klein_ops.tsv").open()
][1:]

# Overloads whose samples are not calls on this device, or which draw from a CPU generator.
NOT_ON_DEVICE = {
    "aten.randn.generator": "drawn on the CPU; test_random.py tests the device's",
    "aten.lift_fresh.default": "wraps a CPU constant in tracing",
}


def make_tensor(match, generator):
    name, dims, strides, channels_last, offset, _ = match.groups()
    dtype = DTYPES[name]
    size = [int(d) for d in dims.split(",") if d]
    if dtype == torch.bool:
        dense = torch.rand(size, generator=generator) > 0.5
    elif dtype.is_floating_point:
        dense = torch.randn(size, generator=generator).to(dtype)
    elif dtype.is_complex:
        dense = torch.randn(size, dtype=dtype, generator=generator)
    else:
        dense = torch.randint(0, 2, size, generator=generator).to(dtype)
    if channels_last:
        dense = dense.to(memory_format=torch.channels_last)
        stride = list(dense.stride())
    elif strides:
        stride = [int(s) for s in strides[4:-1].split(",") if s]
    else:
        stride = list(dense.stride())
    shift = 3 if offset else 0
    span = sum((s - 1) * st for s, st in zip(size, stride, strict=True)) + 1 if dense.numel() else 0
    storage = torch.zeros(span + shift, dtype=dtype)
    view = storage.as_strided(size, stride, shift)
    if all(st != 0 or s <= 1 for s, st in zip(size, stride, strict=True)):
        view.copy_(dense)
    else:  # expanded: every element of the storage gets a value
        integral = not (dtype.is_floating_point or dtype.is_complex)
        values = (
            torch.randint(0, 2, storage.shape, generator=generator)
            if integral
            else torch.randn(storage.shape, generator=generator)
        )
        storage.copy_(values)
    return view


def parse(signature, generator):
    """Positional and keyword arguments of a call on CPU tensors."""
    tensors = []

    def replace(match):
        tensors.append(make_tensor(match, generator))
        return f"__t({len(tensors) - 1})"

    text = TENSOR.sub(replace, signature)
    positional, _, keywords = text.partition(";")
    env = {
        "__t": lambda i: tensors[i],
        "inf": float("inf"),
        "None": None,
        "False": False,
        "True": True,
    }

    def evaluate(expression):
        return eval(expression, {"__builtins__": {}}, env)  # noqa: S307 (our own data file)

    args = list(evaluate(f"[{positional}]"))
    kwargs = {}
    for item in keywords.split(","):
        name, _, value = item.partition("=")
        if name == "dtype":
            kwargs["dtype"] = DTYPES[value]
        elif name == "memory_format":
            kwargs["memory_format"] = getattr(torch, value.removeprefix("torch."))
        elif name == "device":
            kwargs["device"] = None
    return args, kwargs


def signatures():
    for op, _, samples in ROWS:
        for number, sample in enumerate(samples.split(" || ")):
            yield pytest.param(op, sample, id=f"{op}-{number}")


def call(op, args, kwargs, device):
    namespace, name, overload = op.split(".")
    target = getattr(getattr(getattr(torch.ops, namespace), name), overload)

    def move(x):
        if isinstance(x, torch.Tensor):
            if device == "cpu":
                return x
            flat = torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
            return flat.to(device).as_strided(x.size(), x.stride(), x.storage_offset())
        return [move(y) for y in x] if isinstance(x, list) else x

    kwargs = {k: (device if k == "device" else v) for k, v in kwargs.items()}
    return target(*[move(a) for a in args], **kwargs)


@pytest.mark.parametrize(("op", "signature"), signatures())
def test_signature(op, signature):
    if op in NOT_ON_DEVICE:
        pytest.skip(NOT_ON_DEVICE[op])
    if "device=meta" in signature:
        pytest.skip("a call on meta tensors, not on this device")
    args, kwargs = parse(signature, torch.Generator().manual_seed(0))
    has_tensor = any(
        isinstance(a, torch.Tensor)
        or (isinstance(a, list) and a and isinstance(a[0], torch.Tensor))
        for a in args
    )
    if not has_tensor:
        kwargs["device"] = None
    torch_neuronx.clear_op_tracking()
    expected = call(op, args, dict(kwargs), "cpu")
    actual = call(op, args, dict(kwargs), "neuron")
    assert torch_neuronx.get_fallback_ops() == []
    for a, e in zip(_list(actual), _list(expected), strict=True):
        if not isinstance(e, torch.Tensor):
            assert a == e
            continue
        assert a.shape == e.shape
        if (
            op != "aten.native_layer_norm.default"
        ):  # bf16 statistics are f32, as the meta kernel says
            assert a.dtype == e.dtype
        if op not in (
            "aten.convolution.default",
            "aten.bmm.default",
        ):  # CPU kernels choose their own layout
            assert a.stride() == e.stride()
        # One rounding of bf16 (2^-8) may differ; f32 sums of up to 512 terms have another order.
        rtol = (
            1.6e-2
            if torch.bfloat16 in (e.dtype, *(x.dtype for x in args if isinstance(x, torch.Tensor)))
            else 2e-5
        )
        tolerance = (rtol, rtol) if e.dtype.is_floating_point or e.dtype.is_complex else (0, 0)
        torch.testing.assert_close(
            a.cpu().to(e.dtype), e, rtol=tolerance[0], atol=tolerance[1], equal_nan=True
        )


def _list(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def test_every_dtype_of_movement():
    """Dtypes that the sample signatures do not show: complex, f64 and small integers move."""
    for name, dtypes, _ in ROWS:
        if name.split(".")[1] not in (
            "cat",
            "clone",
            "repeat",
            "alias",
            "select",
            "slice",
            "expand",
            "unsqueeze",
            "split_with_sizes",
        ):
            continue
        for short in dtypes.split(","):
            x = make_tensor(TENSOR.fullmatch(f"{short}[2,6]"), torch.Generator().manual_seed(1))
            y = x.to("neuron")
            torch_neuronx.clear_op_tracking()
            assert torch.equal(
                torch.cat([y, y.t().reshape(2, 6)], 1).cpu(), torch.cat([x, x.t().reshape(2, 6)], 1)
            )
            assert torch.equal(y.t().clone().repeat(2, 1).cpu(), x.t().clone().repeat(2, 1))
            assert torch.equal(y[:, ::2].contiguous().cpu(), x[:, ::2].contiguous())
            assert torch_neuronx.get_fallback_ops() == []
