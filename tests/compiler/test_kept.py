"""What several passes of a kernel need of a dear function is computed once."""

# Graphs read best with one value a line.
# ruff: noqa: E501

from __future__ import annotations

import pytest
import torch

import torch_neuronx
from torch_neuronx import _C


def count(function, *args):
    """Transcendental functions evaluated by a compiled function."""
    return sum(k.transcendentals for k in torch_neuronx.explain(function)(*args).kernels)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1),
        lambda x: x.softmax(0),
        lambda x: torch.nn.functional.layer_norm(torch.tanh(x), x.shape[-1:]),
    ],
    ids=["softmax of rows", "softmax of columns", "norm of an activation"],
)
@pytest.mark.parametrize("shape", [(6, 129), (130, 33)], ids=str)
def test_once_per_element(function, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    # And for each row at most one square root or the like, which is not counted.
    assert count(function, x.to("neuron")) == x.numel()


def test_log_softmax_keeps_nothing():
    """Only its sum needs the exponentials; the logarithm is one a row."""
    assert count(lambda x: x.log_softmax(-1), torch.randn(6, 129, device="neuron")) == 6 * 129 + 6


def test_a_chain_keeps_its_end():
    """The inner function is needed for the outer one alone."""
    x = torch.randn(4, 70, device="neuron")
    assert count(lambda x: torch.sigmoid(torch.sin(x)).softmax(-1), x) == 3 * x.numel()


def test_rows_beyond_the_cache_are_computed_again():
    x = torch.randn(8, 300000, device="neuron")  # above 2^18 elements a row; 8 rows stay whole
    assert count(lambda x: x.softmax(-1), x) == 2 * x.numel()


# Contiguous rows and columns; lengths around vectors and their tails; two dimensions reduced at
# once; rows longer than is kept.
SHAPES = [
    ((5, 1), 1),
    ((7, 16), 1),
    ((7, 63), 1),
    ((3, 1000), 1),
    ((65, 70), 0),
    ((2, 33, 5, 19), 1),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("shape, dim", SHAPES, ids=str)
def test_softmax_is_as_exact_as_the_cpus(shape, dim, dtype):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    y = x.to("neuron").softmax(dim).cpu()
    # A few roundings of the compute type and one of the result's.
    eps = max(
        torch.finfo(dtype).eps,
        8 * torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps,
    )
    torch.testing.assert_close(y.double(), x.double().softmax(dim), rtol=eps, atol=eps / 8)


@pytest.mark.parametrize("isa", ["portable", "avx2"])
def test_tails_of_other_instruction_sets(isa, run_python):
    """Without masked vectors a row's tail is walked element by element."""
    code = """
        import torch
        for shape, dim in (((5, 77), 1), ((77, 37), 0), ((3, 9, 11), (1, 2))):
            x = torch.randn(shape)
            d = x.to("neuron")
            if isinstance(dim, tuple):
                f = lambda x: (e := x.exp()) / e.sum(dim, keepdim=True)
                y = torch.compile(f, backend="neuron")(d)
            else:
                f = lambda x: x.softmax(dim)
                y = f(d)
            torch.testing.assert_close(y.cpu().double(), f(x.double()), rtol=1e-5, atol=1e-6)
    """
    run_python(code, TORCH_NEURONX_HOST_ISA=isa)


def test_over_two_dimensions_at_once():
    x = torch.randn(3, 9, 11)

    def f(x):
        e = x.exp()
        return e / e.sum((1, 2), keepdim=True)

    d = x.transpose(1, 2).contiguous().to("neuron").transpose(1, 2)
    assert count(f, d) == x.numel()
    y = torch.compile(f, backend="neuron")(d).cpu()
    torch.testing.assert_close(y.double(), f(x.double()), rtol=1e-6, atol=1e-6)


LOOP = """kernel softmax
dims pr vector 1 operands 2 scalars 0
%0 load f32 0 [s1]
%1 compute f32 exponential{keep} %0
%2 reduce f32 .add %1
%3 compute f32 divide %1 %2
%4 store f32 1 [s1] %3
"""


def test_the_text_says_what_is_kept():
    text = LOOP.format(keep=" keep")
    assert _C.compiler.roundtrip_loop(text) == text


def test_what_cannot_be_kept_is_refused():
    text = LOOP.format(keep="").replace(
        "%3 compute f32 divide %1 %2", "%3 compute f32 exponential keep %2"
    )
    with pytest.raises(RuntimeError, match="instruction %3: kept, but not computed per element"):
        _C.compiler.roundtrip_loop(text)
