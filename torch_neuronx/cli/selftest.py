"""The test of ``torch-neuronx doctor``: ``python -m torch_neuronx.cli.selftest``.

Prints a JSON object: each test's name with what is wrong, or null. PyTorch's CPU device in float64
is the reference.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable

import torch

import torch_neuronx

# float32: about 2^-23 per operation, over sums of 256 terms; bfloat16: two roundings of 2^-9.
_TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


def _compare(function: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> str | None:
    """The worst distance from the reference, if it is too large for a dtype."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.rand(shape, generator=generator) - 0.5 for shape in shapes]
    for dtype, tolerance in _TOLERANCES.items():
        rounded = [x.to(dtype) for x in inputs]
        want = function(*(x.double() for x in rounded))
        got = function(*(x.to("neuron") for x in rounded)).cpu().double()
        distance = ((got - want).abs().max() / want.abs().max()).item()
        if not distance <= tolerance:
            return f"{distance:.1e} from the CPU's result in {dtype}, allowed are {tolerance:.0e}"
    return None


def _elementwise() -> str | None:
    return _compare(lambda x, y: torch.nn.functional.gelu(x * 2 + y), (33, 257), (257,))


def _reductions() -> str | None:
    return _compare(lambda x: torch.softmax(x, -1).sum(0) + x.mean(0), (64, 100))


def _matmul() -> str | None:
    return _compare(lambda x, y: x @ y, (65, 256), (256, 130))


def _convolution() -> str | None:
    return _compare(torch.nn.functional.conv2d, (2, 8, 17, 17), (16, 8, 3, 3))


def _attention() -> str | None:
    attention = torch.nn.functional.scaled_dot_product_attention
    return _compare(attention, (1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32))


def _training() -> str | None:
    def gradient(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        w = w.detach().requires_grad_()
        torch.nn.functional.silu(x @ w).square().mean().backward()
        assert w.grad is not None
        return w.grad

    return _compare(gradient, (32, 64), (64, 16))


def _streams() -> str | None:
    stream = torch.neuron.Stream()
    x = torch.ones(1000, device="neuron")
    stream.wait_stream(torch.neuron.current_stream())
    with torch.neuron.stream(stream):
        y = x + 1
    event = stream.record_event()
    torch.neuron.current_stream().wait_event(event)
    total = (y * 2).sum().item()
    return None if total == 4000 else f"the sum is {total}, expected 4000"


def _compiled() -> str | None:
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
    )
    x = torch.rand(16, 32)
    with torch.no_grad():
        want = copy.deepcopy(model).double()(x.double())
        got = torch.compile(model.to("neuron"), backend="neuron", fullgraph=True)(x.to("neuron"))
    distance = (got.cpu().double() - want).abs().max().item()
    return None if distance <= 1e-5 else f"{distance:.1e} from the CPU's result"


def _cache() -> str | None:
    counts = torch_neuronx.metrics.get_compilation_metrics()
    if counts["compilations"] == 0:
        return "nothing was compiled, although its cache was empty"
    if counts["disk_rejected"] or counts["disk_write_failures"]:
        return f"files were refused or not written: {counts}"
    return None


_TESTS = {
    "elementwise": _elementwise,
    "reductions": _reductions,
    "matmul": _matmul,
    "convolution": _convolution,
    "attention": _attention,
    "training": _training,
    "streams": _streams,
    "torch.compile": _compiled,
    "cache": _cache,
}


def main() -> int:
    results: dict[str, str | None] = {}
    for name, test in _TESTS.items():
        try:
            results[name] = test()
        except Exception as error:  # noqa: BLE001 (each is a finding)
            results[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    fallbacks = torch_neuronx.get_fallback_ops()
    if fallbacks:
        results["no fallback"] = f"these ran on the CPU: {', '.join(fallbacks)}"
    json.dump(results, sys.stdout)
    return 1 if any(results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
