"""Convolutions: values, and memory formats exactly as PyTorch's."""

from __future__ import annotations

import pytest
import torch

import torch_neuronx

CASES = {
    "2-d": ((2, 16, 20, 24), (32, 16, 3, 3), {"padding": 1}),
    "patches": ((1, 3, 32, 32), (64, 3, 8, 8), {"stride": 8}),
    "pointwise": ((2, 24, 9, 11), (40, 24, 1, 1), {}),
    "dilated": ((1, 8, 20, 20), (12, 8, 3, 3), {"dilation": 2, "padding": 2}),
    "grouped": ((2, 12, 10, 10), (18, 4, 3, 3), {"groups": 3}),
    "depthwise": ((2, 24, 15, 16), (24, 1, 3, 3), {"groups": 24, "padding": 1}),
    "1-d": ((2, 8, 50), (16, 8, 5), {"padding": 2, "stride": 2}),
    "3-d": ((1, 6, 5, 9, 8), (10, 6, 3, 3, 3), {"padding": 1}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_matches_cpu(case, channels_last, dtype):
    x_shape, w_shape, options = CASES[case]
    torch.manual_seed(0)
    x, w = torch.randn(x_shape).to(dtype), torch.randn(w_shape).to(dtype)
    bias = torch.randn(w_shape[0]).to(dtype)
    if channels_last:
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        if x.dim() not in formats:
            pytest.skip("no channels-last format of this rank")
        x = x.contiguous(memory_format=formats[x.dim()])
    convolve = [torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d]
    run = convolve[x.dim() - 3]
    expected = run(x.double(), w.double(), bias.double(), **options)
    layout = run(x, w, bias, **options).stride()
    torch_neuronx.clear_op_tracking()
    got = run(x.to("neuron"), w.to("neuron"), bias.to("neuron"), **options)
    assert torch_neuronx.get_fallback_ops() == []
    if x.dim() == 5 and dtype != torch.float64 and channels_last:
        assert got.is_contiguous(memory_format=torch.channels_last_3d)  # as on CUDA
    else:
        assert got.stride() == layout
    assert got.dtype == dtype
    # Up to 192 products of values near 1, rounded once to the dtype.
    tolerance = {torch.float32: 1e-4, torch.bfloat16: 1e-2, torch.float16: 2e-3}.get(dtype, 1e-12)
    torch.testing.assert_close(got.cpu().double(), expected, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stride,padding,output_padding", [(1, 0, 0), (2, 1, 1), (3, 2, 0)])
def test_transposed(dtype, stride, padding, output_padding):
    torch.manual_seed(0)
    x, w = torch.randn(2, 16, 7, 9).to(dtype), torch.randn(16, 20, 3, 3).to(dtype)
    options = {"stride": stride, "padding": padding, "output_padding": output_padding}
    run = torch.nn.functional.conv_transpose2d
    expected = run(x.double(), w.double(), **options)
    got = run(x.to("neuron"), w.to("neuron"), **options)
    assert got.stride() == run(x, w, **options).stride()
    tolerance = 1e-4 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(got.cpu().double(), expected, rtol=tolerance, atol=10 * tolerance)


def test_errors_are_pytorch_s():
    x, w = torch.randn(1, 3, 8, 8, device="neuron"), torch.randn(4, 5, 3, 3, device="neuron")
    with pytest.raises(RuntimeError, match="[Ii]nvalid channel"):
        torch.nn.functional.conv2d(x, w)
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        torch.nn.functional.conv2d(x, torch.randn(4, 3, 9, 9, device="neuron"))
