"""Gradients of norms, losses, lookups and resampling: native, and those of PyTorch CPU."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten

import torch_neuronx
from tests.aten.test_opinfo import full_name, to_device

NAMES = {
    "nn.functional.batch_norm",
    "nn.functional.instance_norm",
    "nn.functional.layer_norm",
    "nn.functional.group_norm",
    "nn.functional.rms_norm",
    "nn.functional.embedding",
    "nn.functional.nll_loss",
    "nn.functional.cross_entropy",
    "nn.functional.mse_loss",
    "nn.functional.smooth_l1_loss",
    "nn.functional.huber_loss",
    "nn.functional.interpolate.nearest",
    "nn.functional.interpolate.nearest-exact",
    "nn.functional.upsample_nearest",
}
OPS = [op for op in op_db if full_name(op) in NAMES]
# What samples use beyond the op itself.
ALLOWED = {"aten::embedding_renorm_"}
# Probabilities as targets are a product and a sum; a sample's class out of range is not looked at.
DTYPES = (torch.float32, torch.bfloat16, torch.float64)
# bf16: sums of rounded products, a few units of 2^-8 of values near 1.
TOLERANCE = {torch.float32: 5e-5, torch.bfloat16: 4e-2, torch.float64: 1e-10}


def test_names_are_known():
    assert {full_name(op) for op in OPS} == NAMES


def cases():
    for op in OPS:
        for dtype in DTYPES:
            if dtype in op.supported_backward_dtypes("cpu"):
                yield pytest.param(op, dtype, id=f"{full_name(op)}-{str(dtype)[6:]}")


def run(op, sample, move, wide):
    """Outputs, then the gradient of each differentiable input for an output gradient of waves."""

    def widened(x):
        if isinstance(x, torch.Tensor) and wide is not None and x.is_floating_point():
            return x.detach().to(wide).requires_grad_(x.requires_grad)
        return x

    flat, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    flat = [widened(x) for x in flat]
    needs = [isinstance(x, torch.Tensor) and x.requires_grad for x in flat]
    moved = [move(x) if isinstance(x, torch.Tensor) else x for x in flat]
    moved = [
        x.detach().requires_grad_() if need else x for x, need in zip(moved, needs, strict=True)
    ]
    from torch.utils._pytree import tree_unflatten

    tensor, args, kwargs = tree_unflatten(moved, spec)
    out = op(tensor, *args, **kwargs)
    leaves = [x for x, need in zip(moved, needs, strict=True) if need]
    results = [out, *(x for x in moved if isinstance(x, torch.Tensor) and not x.requires_grad)]
    if out.requires_grad:
        wave = torch.linspace(-1, 1, max(out.numel(), 1))[: out.numel()].reshape(out.shape)
        grad = wave.to(out.dtype).to(out.device)
        results += torch.autograd.grad(out, leaves, grad, allow_unused=True)
    return results


@pytest.mark.parametrize(("op", "dtype"), cases())
def test_matches_cpu(op, dtype):
    torch.manual_seed(0)
    torch_neuronx.clear_op_tracking()
    count = 0
    for sample in op.sample_inputs("cpu", dtype, requires_grad=True):
        # The truth of narrow dtypes in float64: PyTorch CPU rounds some intermediate sums.
        expected = run(op, sample, torch.clone, torch.float64)
        actual = run(op, sample, to_device, None)
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            assert (a is None) == (e is None)
            if a is None:
                continue
            assert a.device.type == "neuron"
            tolerance = TOLERANCE[dtype]
            torch.testing.assert_close(
                a.cpu(), e, rtol=tolerance, atol=tolerance, equal_nan=True, check_dtype=False
            )
        count += 1
    assert count > 0
    assert set(torch_neuronx.get_fallback_ops()) <= ALLOWED
