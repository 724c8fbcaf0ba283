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


GRADIENTS = {
    **{name: (*case, False) for name, case in CASES.items()},
    "strided": ((2, 6, 11, 12), (8, 6, 3, 3), {"stride": 2, "padding": 1}, False),
    "stride beyond the kernel": ((1, 4, 13, 13), (6, 4, 2, 2), {"stride": 4}, False),
    "transposed": ((2, 8, 6, 7), (8, 6, 3, 3), {"stride": 2, "padding": 1}, True),
    "transposed, grouped": (
        (2, 8, 6, 7),
        (8, 3, 3, 3),
        {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2},
        True,
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients_match_cpu(case, dtype):
    x_shape, w_shape, options, transposed = GRADIENTS[case]
    name = f"conv_transpose{len(x_shape) - 2}d" if transposed else f"conv{len(x_shape) - 2}d"
    run = getattr(torch.nn.functional, name)
    torch.manual_seed(0)
    x, w = torch.randn(x_shape).to(dtype), torch.randn(w_shape).to(dtype)
    bias = torch.randn(w_shape[1] * options.get("groups", 1) if transposed else w_shape[0]).to(
        dtype
    )
    results = []
    grad = None
    for device, kind in (("cpu", torch.float64), ("neuron", dtype)):
        leaves = [t.detach().to(device, kind).requires_grad_() for t in (x, w, bias)]
        out = run(*leaves, **options)
        if grad is None:
            grad = torch.randn(out.shape).to(dtype)
        torch_neuronx.clear_op_tracking()
        out.backward(grad.to(device, kind))
        results.append([t.grad for t in leaves])
    assert torch_neuronx.get_fallback_ops() == []
    # Sums of up to 960 products of values near 1, rounded once to the dtype.
    tolerance = {torch.float32: 2e-5, torch.bfloat16: 1e-2}.get(dtype, 1e-12)
    for expected, got in zip(*results, strict=True):
        assert got.dtype == dtype
        scale = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(
            got.cpu().double(), expected, rtol=tolerance, atol=tolerance * scale
        )


def test_training_step_compiled():
    torch.manual_seed(0)
    host = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.SiLU(), torch.nn.Conv2d(8, 4, 3, stride=2)
    )
    device = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.SiLU(), torch.nn.Conv2d(8, 4, 3, stride=2)
    )
    device.load_state_dict(host.state_dict())
    device.to("neuron")
    x = torch.randn(2, 3, 12, 12)
    host(x).pow(2).mean().backward()
    torch.compile(device, backend="neuron")(x.to("neuron")).pow(2).mean().backward()
    for e, a in zip(host.parameters(), device.parameters(), strict=True):
        torch.testing.assert_close(a.grad.cpu(), e.grad, rtol=1e-4, atol=1e-6)
