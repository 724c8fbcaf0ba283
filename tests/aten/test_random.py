"""Random numbers of the device: reproducible, and distributed as they should be."""

from __future__ import annotations

import math
import re

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


@pytest.mark.parametrize(
    ("draw", "cdf"),
    [
        (lambda x: x.cauchy_(1, 2), lambda x: 0.5 + torch.atan((x - 1) / 2) / math.pi),
        (lambda x: x.log_normal_(0.5, 0.7), lambda x: normal_cdf((x.log() - 0.5) / 0.7)),
        (lambda x: x.exponential_(2), lambda x: 1 - torch.exp(-2 * x)),
    ],
    ids=["cauchy", "log_normal", "exponential"],
)
def test_continuous_distributions(draw, cdf):
    torch.manual_seed(1)
    assert ks_distance(draw(torch.empty(N, device="neuron")).cpu(), cdf) < LIMIT


def chi_square(counts, probabilities):
    """Of observed counts; its mean is the number of classes - 1, its variance twice that."""
    expected = probabilities.double() * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def surely_below(degrees):
    """Four standard deviations above the mean of chi-square; the seeds are fixed."""
    return degrees + 4 * math.sqrt(2 * degrees)


def test_geometric():
    torch.manual_seed(1)
    x = torch.empty(N, device="neuron").geometric_(0.3).cpu()
    counts = torch.bincount(x.long(), minlength=9)
    assert counts[0] == 0
    expected = 0.3 * 0.7 ** torch.arange(8)
    assert chi_square(counts[1:9], expected / expected.sum()) < surely_below(7)
    integers = torch.empty(5, dtype=torch.int64, device="neuron").geometric_(0.9)
    assert integers.min().item() >= 1


# Below and above 2^32, where one word of random bits is not enough; and all of int64.
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float32])
@pytest.mark.parametrize(
    "bounds", [(0, 10), (-7, 5), (0, 2**40), (-(2**62), 2**62), (0, 2**63 - 1)]
)
def test_integers(dtype, bounds):
    low, high = bounds
    x = torch.empty(N, dtype=dtype, device="neuron")
    if dtype != torch.float32 and not (
        torch.iinfo(dtype).min <= low and high - 1 <= torch.iinfo(dtype).max
    ):
        with pytest.raises(RuntimeError, match="out of bounds"):
            x.random_(low, high)
        return
    torch.manual_seed(1)
    x = x.random_(low, high).cpu().double()
    assert x.min() >= low and x.max() < high
    classes = min(high - low, 16)
    bucket = ((x - low) * (classes / (high - low))).long()
    counts = torch.bincount(bucket, minlength=classes)
    assert chi_square(counts, torch.full((classes,), 1 / classes)) < surely_below(classes - 1)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16]
)
def test_integers_of_a_dtype(dtype):
    torch.manual_seed(1)
    largest = {torch.bool: 1, torch.float16: 2048}.get(dtype) or torch.iinfo(dtype).max
    x = torch.empty(N, dtype=dtype, device="neuron").random_().cpu().double()
    assert x.min() >= 0 and x.max() <= largest
    # The mean of a uniform distribution, within four of its standard deviations.
    assert abs(x.mean() / largest - 0.5) < 4 * math.sqrt(1 / 4 / N)


@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial(replacement):
    torch.manual_seed(1)
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0, 6.0])
    rows = weights.expand(N // 4, 5).to("neuron")
    drawn = rows.multinomial(2, replacement).cpu()
    first = torch.bincount(drawn[:, 0], minlength=5)
    assert first[0] == 0 and first[3] == 0
    assert chi_square(first[[1, 2, 4]], weights[[1, 2, 4]] / 10) < surely_below(2)
    same = (drawn[:, 0] == drawn[:, 1]).double().mean()
    assert abs(same - 0.46 * replacement) < 4 * math.sqrt(0.25 * 4 / N)
    out = torch.empty(0, dtype=torch.int64, device="neuron")
    torch.multinomial(rows[0], 1, out=out)
    assert out.item() in (1, 2, 4)


def test_normal_of_tensors():
    torch.manual_seed(1)
    mean, std = torch.tensor([[0.0], [5.0]]), torch.tensor([1.0, 2.0]).repeat_interleave(N // 4)
    for args in [(mean, std), (mean.expand(2, N // 2), 2.0), (3.0, std)]:
        moved = [a.to("neuron") if isinstance(a, torch.Tensor) else a for a in args]
        x = torch.normal(*moved).cpu()
        z = ((x - args[0]) / args[1]).flatten()
        assert ks_distance(z, normal_cdf) < 1.95 / math.sqrt(z.numel())
    complex_normal = torch.randn(N, dtype=torch.complex64, device="neuron").cpu()
    assert ks_distance(torch.view_as_real(complex_normal).flatten() * 2**0.5, normal_cdf) < LIMIT


def test_rrelu():
    torch.manual_seed(1)
    x = torch.randn(2000, device="neuron", requires_grad=True)
    y = torch.nn.functional.rrelu(x, 0.1, 0.3, training=True)
    (grad,) = torch.autograd.grad(y.sum(), x)
    slope = grad.cpu()
    assert torch.equal(slope[x.cpu() > 0], torch.ones_like(slope[x.cpu() > 0]))
    assert slope.min() >= 0.1 and slope.max() <= 1
    assert torch.allclose(y.detach().cpu(), x.detach().cpu() * slope)


def test_refusals_are_those_of_the_cpu():
    calls = {
        "uniform": lambda x: x.uniform_(2, 1),
        "normal": lambda x: x.normal_(0, -1),
        "exponential": lambda x: x.exponential_(-1),
        "cauchy": lambda x: x.cauchy_(0, 0),
        "log_normal": lambda x: x.log_normal_(0, -1),
        "geometric": lambda x: x.geometric_(1.5),
        "bernoulli": lambda x: x.bernoulli_(2),
        "random": lambda x: x.random_(3, 1),
        "negative": lambda x: torch.multinomial(x - 5, 1),
        "nothing": lambda x: torch.multinomial(x * 0, 2, True),
        "too many": lambda x: torch.multinomial(x, 9),
        "integers": lambda x: torch.multinomial(x.long(), 1),
        "std": lambda x: torch.normal(x, -x),
    }
    for call in calls.values():
        with pytest.raises(RuntimeError) as refused:
            call(torch.ones(4))
        message = str(refused.value).splitlines()[0].partition("(Triggered")[0]
        torch.empty(4, device="neuron").normal_(0, 1).exponential_(1)  # a plan exists already
        with pytest.raises(RuntimeError, match=re.escape(message)):
            call(torch.ones(4, device="neuron"))
