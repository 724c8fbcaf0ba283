"""Large reductions in parts: input text -> expected text, values, and bits that threads leave be."""

# Graphs read best with one value a line.
# ruff: noqa: E501

from __future__ import annotations

import pytest
import torch

from torch_neuronx import _C

KINDS = {
    "add": torch.sum,
    "maximum": torch.amax,
    "minimum": torch.amin,
}


def split(*lines: str) -> list[str]:
    last = lines[-1].split()[0]
    rank = lines[-1].rpartition("[")[2].count(",") + (not lines[-1].endswith("[]"))
    body = "".join(f"  {line}\n" for line in lines)
    strides = [1] * rank
    text = f"graph @case {{\n{body}  return {last} {{strides={strides}}}\n}}\n"
    return [line.strip() for line in _C.compiler.split_reductions(text).splitlines()[1:-2]]


def test_an_even_cut_of_the_longest_dimension():
    assert split(
        "%0 = parameter {index=0, strides=[65536, 1]} : f32[4,65536]",
        '%1 = reduce(%0) {dims=[0, 1], kind="add"} : f32[]',
    ) == [
        "%0 = parameter {index=0, strides=[65536, 1]} : f32[4,65536]",
        "%1 = reshape(%0) : f32[4,16,4096]",
        '%2 = reduce(%1) {dims=[0, 2], kind="add"} : f32[16]',
        '%3 = reduce(%2) {dims=[0], kind="add"} : f32[]',
    ]


def test_a_length_without_divisors_leaves_a_rest():
    assert split(
        "%0 = parameter {index=0, strides=[1]} : f32[65537]",
        '%1 = reduce(%0) {dims=[0], kind="maximum"} : f32[]',
    ) == [
        "%0 = parameter {index=0, strides=[1]} : f32[65537]",
        "%1 = slice(%0) {limit=[65536], start=[0], stride=[1]} : f32[65536]",
        "%2 = reshape(%1) : f32[4,16384]",
        '%3 = reduce(%2) {dims=[1], kind="maximum"} : f32[4]',
        '%4 = reduce(%3) {dims=[0], kind="maximum"} : f32[]',
        "%5 = slice(%0) {limit=[65537], start=[65536], stride=[1]} : f32[1]",
        '%6 = reduce(%5) {dims=[0], kind="maximum"} : f32[]',
        "%7 = maximum(%4, %6) : f32[]",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        (
            "%0 = parameter {index=0, strides=[1]} : f32[16384]",
            '%1 = reduce(%0) {dims=[0], kind="add"} : f32[]',
        ),
        (
            "%0 = parameter {index=0, strides=[65536, 1]} : f32[8,65536]",
            '%1 = reduce(%0) {dims=[1], kind="add"} : f32[8]',
        ),
        (
            "%0 = parameter {index=0, strides=[1]} : f32[65536]",
            '%1 = reduce(%0) {dims=[0], kind="argmax"} : i64[]',
        ),
    ],
    ids=["small", "enough rows", "arguments"],
)
def test_what_stays_whole(lines):
    assert split(*lines) == list(lines)


@pytest.mark.parametrize("dims", [(200000,), (131071,), (3, 7, 7001), (70001, 3)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_values(kind, dims):
    x = torch.randn(dims, generator=torch.Generator().manual_seed(1))
    over = range(x.dim()) if dims[-1] != 3 else (0,)
    y = KINDS[kind](x.to("neuron"), tuple(over)).cpu()
    expected = KINDS[kind](x.double(), tuple(over))
    # Columns are summed one after the other: n roundings of half a unit in the last place of sums
    # of size sqrt(n), which for the most part cancel. A lost element would be of size 1.
    atol = 2e-8 * x.numel() if kind == "add" else 0
    torch.testing.assert_close(y.double(), expected, rtol=1e-6, atol=atol)


def test_nan_and_logic():
    x = torch.zeros(100001)
    d = x.to("neuron")
    assert not (d != 0).any() and (d == 0).all()
    for place in (0, 99999, 100000):  # parts and the rest
        x[place] = float("nan")
        d = x.to("neuron")
        assert d.amax().isnan() and d.amin().isnan() and d.sum().isnan()
        assert (d != 0).any() and not (d == 0).all()
        x[place] = 0
    assert d.to(torch.int64).prod() == 0
    assert torch.ones(100001, dtype=torch.int64).to("neuron").prod() == 1


CODE = """
import hashlib
import torch
x = torch.randn(331 * 457, generator=torch.Generator().manual_seed(0)).to("neuron")
found = torch.zeros(1, device="neuron")
gradient = x.clone()
torch._amp_foreach_non_finite_check_and_unscale_([gradient], found, torch.ones(1, device="neuron"))
compiled = torch.compile(lambda v: (v.square().mean(), v.softmax(0)), backend="neuron")
results = [
    x.sum(), x.mean(), x.amax(), x.var(), torch.linalg.vector_norm(x), x.logsumexp(0), found,
    gradient, x.view(331, 457)[:5].softmax(1), *compiled(x),
]
digest = hashlib.sha256()
for y in results:
    digest.update(y.cpu().numpy().tobytes())
print(digest.hexdigest())
"""


def test_bits_do_not_depend_on_the_number_of_threads(run_python):
    digests = {
        run_python(CODE, TORCH_NEURONX_HOST_THREADS=str(n), OMP_NUM_THREADS=str(n))
        for n in (1, 2, 5)
    }
    assert len(digests) == 1


def test_torch_set_num_threads_changes_no_bits():
    x = torch.randn(200003, generator=torch.Generator().manual_seed(3)).to("neuron")
    before = torch.get_num_threads()
    results = []
    for n in (1, 2):
        torch.set_num_threads(n)
        results.append((x.sum().cpu(), x.var().cpu(), torch.linalg.vector_norm(x).cpu()))
    torch.set_num_threads(before)
    assert results[0] == results[1]
