"""Convolution against float64, on every instruction set of this CPU.

Tolerance: with s the sum of the absolute products of an element, n of them, the error is at most
(n + 1) 2^-24 s in f32, and one rounding to the dtype.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_neuronx import _C

kernels = _C.kernels
ISAS = kernels.available_isas()
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def padded(values, fill):
    return [fill] * (3 - len(values)) + list(values)


def strides(tensor):
    own = list(tensor.stride())
    return own[:2] + padded(own[2:], 0)


def run(x, w, bias, out, window, groups, transposed, isa):
    kernels.convolution(
        NAMES[x.dtype],
        [x.shape[0], groups, x.shape[1], out.shape[1]],
        [
            padded(x.shape[2:], 1),
            padded(out.shape[2:], 1),
            padded(w.shape[2:], 1),
            padded(window["stride"], 1),
            padded(window["padding"], 0),
            padded(window["dilation"], 1),
        ],
        transposed,
        [x.data_ptr(), w.data_ptr(), out.data_ptr()],
        [strides(x), strides(w), strides(out)],
        0 if bias is None else bias.data_ptr(),
        0 if bias is None else bias.stride(0),
        isa,
    )


def reference(x, w, bias, window, groups, transposed, output_padding):
    def convolve(*tensors):
        return torch.convolution(
            *tensors,
            window["stride"],
            window["padding"],
            window["dilation"],
            transposed,
            output_padding,
            groups,
        )

    tensors = [t if t is None else t.double() for t in (x, w, bias)]
    return convolve(*tensors), convolve(*(t if t is None else t.abs() for t in tensors))


def last(tensor, channels_last):
    """The same values with channels innermost."""
    if not channels_last:
        return tensor
    order = [0, *range(2, tensor.dim()), 1]
    back = [0, tensor.dim() - 1, *range(1, tensor.dim() - 1)]
    return tensor.permute(order).contiguous().permute(back)


def check(x, w, bias, window, groups=1, transposed=False, output_padding=None, isa="", out=None):
    output_padding = output_padding or [0] * (x.dim() - 2)
    expected, size = reference(x, w, bias, window, groups, transposed, output_padding)
    if out is None:
        out = last(torch.empty(expected.shape, dtype=x.dtype), False)
    out.fill_(float("nan"))
    run(x, w, bias, out, window, groups, transposed, isa)
    n = w[0].numel() if not transposed else w.numel() // w.shape[1]
    limit = (n + 2) * 2.0**-24 * size
    limit += torch.finfo(x.dtype).eps / 2 * (expected.abs() + limit) * 1.01
    excess = (out.double() - expected).abs() - limit - (2.0**-25 if x.dtype == torch.float16 else 0)
    assert not out.isnan().any(), "an element was not written"
    assert not excess.numel() or excess.max() <= 0, f"error exceeds the limit by {excess.max()}"


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_shapes_windows_and_layouts(isa, data):
    rank = data.draw(st.integers(1, 3))
    dtype = data.draw(st.sampled_from(list(NAMES)))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    groups = data.draw(st.sampled_from([1, 1, 2, 3]))
    channels = st.one_of(st.integers(1, 9), st.sampled_from([16, 33, 64, 70]))
    in_channels = groups * data.draw(channels)
    out_channels = groups * data.draw(channels)
    limit = {1: 60, 2: 20, 3: 7}[rank]

    def sizes(low, high):
        return data.draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    transposed = data.draw(st.booleans())
    window = {"stride": sizes(1, 3), "padding": sizes(0, 3), "dilation": sizes(1, 2)}
    kernel = sizes(1, 4)
    output_padding = [0] * rank
    shape = []
    for i in range(rank):
        reach = window["dilation"][i] * (kernel[i] - 1) + 1
        if transposed:
            top = max(window["stride"][i], window["dilation"][i]) - 1
            output_padding[i] = data.draw(st.integers(0, top))
            lost = reach + output_padding[i] - 2 * window["padding"][i]
            least = max(1, -(-(1 - lost) // window["stride"][i]) + 1)
        else:
            least = max(1, reach - 2 * window["padding"][i])
        shape.append(data.draw(st.integers(least, least + limit)))
    x = torch.randn(data.draw(st.integers(1, 2)), in_channels, *shape, generator=generator)
    first, second = (
        (in_channels, out_channels // groups)
        if transposed
        else (out_channels, in_channels // groups)
    )
    w = torch.randn(first, second, *kernel, generator=generator)
    bias = torch.randn(out_channels, generator=generator) if data.draw(st.booleans()) else None
    x, w, bias = (t if t is None else t.to(dtype) for t in (x, w, bias))
    expected, _ = reference(x, w, bias, window, groups, transposed, output_padding)
    out = last(torch.empty(expected.shape, dtype=dtype), data.draw(st.booleans()))
    x, w = last(x, data.draw(st.booleans())), last(w, data.draw(st.booleans()))
    check(x, w, bias, window, groups, transposed, output_padding, isa, out)


MODELS = [
    # name, x, w, stride, padding, groups
    ("VAE", (1, 96, 24, 40), (64, 96, 3, 3), 1, 1, 1),
    ("wide rows", (1, 8, 5, 700), (40, 8, 3, 3), 1, 1, 1),
    ("down", (2, 64, 17, 18), (130, 64, 3, 3), 2, 1, 1),
    ("patches", (1, 3, 64, 48), (96, 3, 16, 16), 16, 0, 1),
    ("pointwise", (2, 64, 9, 9), (48, 64, 1, 1), 1, 0, 1),
    ("pointwise, strided", (2, 64, 9, 9), (48, 64, 1, 1), 2, 0, 1),
    ("depthwise", (2, 40, 20, 33), (40, 1, 5, 5), 1, 2, 40),
    ("depthwise, strided", (1, 40, 20, 33), (80, 1, 3, 3), 2, 1, 40),
    ("many channels", (1, 520, 6, 6), (300, 520, 3, 3), 1, 1, 1),
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m[0])
def test_models(isa, dtype, channels_last, model):
    _, x_shape, w_shape, stride, padding, groups = model
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(s, generator=generator).to(dtype) for s in (x_shape, w_shape))
    bias = torch.randn(w_shape[0], generator=generator).to(dtype)
    window = {"stride": [stride] * 2, "padding": [padding] * 2, "dilation": [1, 1]}
    expected, _ = reference(x, w, bias, window, groups, False, [0, 0])
    out = last(torch.empty(expected.shape, dtype=dtype), channels_last)
    check(last(x, channels_last), w, bias, window, groups, isa=isa, out=out)


def test_no_channels_and_no_items():
    window = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1]}
    bias = torch.randn(4)
    check(torch.randn(2, 0, 5, 5), torch.randn(4, 0, 3, 3), bias, window)
    check(torch.randn(0, 3, 5, 5), torch.randn(4, 3, 3, 3), bias, window)


def test_rejects_what_it_cannot_do():
    x, w, y = torch.ones(1, 3, 4, 4), torch.ones(4, 3, 3, 3), torch.ones(1, 4, 4, 4)
    window = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1]}
    with pytest.raises(ValueError, match="output size 4 exceeds"):
        run(x, w, None, y, window, 1, False, "")
    window["padding"] = [1, 1]
    with pytest.raises(ValueError, match="2 groups do not divide 3 and 4 channels"):
        run(x, w, None, y, window, 2, False, "")
