"""Random numbers of the device: reproducible, and distributed as they should be."""

from __future__ import annotations

import math

import pytest
import torch

N = 200_000


def ks_distance(sample: torch.Tensor, cdf) -> float:
    """Kolmogorov-Smirnov: the largest distance of the sample's distribution from ``cdf``."""
    x = sample.double().sort().values
    n = x.numel()
    steps = torch.arange(1, n + 1, dtype=torch.float64) / n
    return float(torch.maximum((steps - cdf(x)).abs(), (cdf(x) - (steps - 1 / n)).abs()).max())


def normal_cdf(x):
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


# The distance exceeds 1.95 / sqrt(n) once in a thousand seeds; the seed is fixed.
LIMIT = 1.95 / math.sqrt(N)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distributions(dtype):
    torch.manual_seed(1)
    normal = torch.randn(N, device="neuron", dtype=dtype).cpu()
    assert ks_distance(normal, normal_cdf) < LIMIT
    uniform = torch.rand(N, device="neuron", dtype=dtype).cpu()
    assert uniform.min() >= 0 and uniform.max() < 1
    assert ks_distance(uniform, lambda x: x.clamp(0, 1)) < LIMIT
    shifted = torch.empty(N, device="neuron", dtype=dtype).normal_(3, 2).cpu()
    assert ks_distance((shifted - 3) / 2, normal_cdf) < LIMIT
    kept = torch.empty(N, device="neuron", dtype=dtype).bernoulli_(0.3).mean().item()
    assert abs(kept - 0.3) < 4 * math.sqrt(0.3 * 0.7 / N)


def test_seed_repeats_and_calls_differ():
    torch.manual_seed(7)
    a, b = torch.randn(100, device="neuron"), torch.randn(100, device="neuron")
    torch.manual_seed(7)
    assert torch.equal(torch.randn(100, device="neuron").cpu(), a.cpu())
    assert not torch.equal(a.cpu(), b.cpu())


def test_generator_and_state():
    generator = torch.Generator(device="neuron").manual_seed(3)
    first = torch.randn(50, device="neuron", generator=generator).cpu()
    state = generator.get_state()
    second = torch.randn(50, device="neuron", generator=generator).cpu()
    generator.set_state(state)
    assert torch.equal(torch.randn(50, device="neuron", generator=generator).cpu(), second)
    generator.manual_seed(3)
    assert torch.equal(torch.randn(50, device="neuron", generator=generator).cpu(), first)


def test_layout_does_not_change_the_numbers():
    torch.manual_seed(5)
    plain = torch.empty(30, 40, device="neuron").normal_().cpu()
    torch.manual_seed(5)
    transposed = torch.empty(40, 30, device="neuron").t().normal_().cpu()
    assert torch.equal(plain, transposed)


def test_fork_rng_restores():
    torch.manual_seed(2)
    with torch.random.fork_rng(devices=[0], device_type="neuron"):
        torch.randn(5, device="neuron")
    torch.manual_seed(2)
    a = torch.randn(5, device="neuron").cpu()
    torch.manual_seed(2)
    with torch.random.fork_rng(devices=[0], device_type="neuron"):
        torch.randn(17, device="neuron")
    assert torch.equal(torch.randn(5, device="neuron").cpu(), a)
