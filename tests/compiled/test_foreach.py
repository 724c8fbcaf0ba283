"""``_foreach_*`` ops inside compiled graphs: all of them, compiled as the ops of their elements."""

from __future__ import annotations

import pytest
import torch

from torch_neuronx.neuron_dynamo_backend import foreach

SHAPES = [(3, 4), (5,), ()]


def functional_ops():
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        base, _, overload = name.removeprefix("aten::").partition(".")
        if base.startswith("_foreach_") and not base.endswith("_") and not overload.endswith("out"):
            yield getattr(getattr(torch.ops.aten, base), overload or "default")


OPS = list(functional_ops())


def traceable(op):
    """Not with numbers in one tensor: PyTorch reads them while it traces. Products apart."""
    names = {arg.name: str(arg.type) for arg in op._schema.arguments}
    return names.get("scalars") != "Tensor" and "mat2" not in names


CASES = [op for op in OPS if traceable(op)]


def arguments(op, lists):
    """Of the device and dtype of the lists; all values lie in (0, 1), where all ops are defined."""
    tensors = iter(lists)
    out = []
    for arg in op._schema.arguments:
        kind = str(arg.type)
        if kind == "List[Tensor]":
            out.append(next(tensors))
        elif kind.startswith("List["):
            out.append([0.25, 2, 0.75])
        elif kind == "Tensor":
            out.append(lists[0][0].new_tensor(0.5))
        elif arg.default_value is None and not kind.startswith("Optional"):
            out.append(0.5)
    return out


def everything(rows):
    return [op(*row) for op, row in zip(CASES, rows, strict=True)]


def rows(dtype, device="cpu"):
    lists = make(dtype, device)
    return [arguments(op, lists) for op in CASES]


def make(dtype, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    return [
        [torch.rand(s, generator=generator).mul(0.8).add(0.1).to(device, dtype) for s in SHAPES]
        for _ in range(3)
    ]


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


def test_every_op_has_elements():
    assert len(OPS) > 70
    without = set(OPS) - set(foreach.decompositions())
    assert {str(op) for op in without} == {
        "aten._foreach_addcdiv.Tensor",
        "aten._foreach_addcmul.Tensor",
    }


def test_all_ops_in_one_graph(steps):
    compiled = torch.compile(everything, backend="neuron", fullgraph=True)
    results = compiled(rows(torch.float32, "neuron"))
    assert steps == [["graph"]]
    references = everything(rows(torch.float64))
    for op, result, reference in zip(CASES, results, references, strict=True):
        for a, e in zip(result, reference, strict=True):
            message = f"{op}: {a.cpu()} instead of {e}"
            # Functions of f32 are within a few units in the last place of the exact ones.
            assert torch.allclose(a.cpu().double(), e.double(), rtol=3e-6, atol=1e-6), message


def test_as_eager(steps):
    """Dtypes, shapes and devices too."""
    inputs = rows(torch.bfloat16, "neuron")
    compiled = torch.compile(everything, backend="neuron", fullgraph=True)(inputs)
    eager = everything(inputs)
    # One rounding to bfloat16 in either; a graph may round once where eager rounds an inner value.
    torch.testing.assert_close(compiled, eager, rtol=2**-6, atol=2**-8)


def test_in_place(steps):
    def update(parameters, gradients, averages):
        torch._foreach_mul_(averages, 0.9)
        torch._foreach_addcmul_(averages, gradients, gradients, value=0.1)
        torch._foreach_lerp_(gradients, averages, 0.25)
        denominators = torch._foreach_sqrt(averages)
        torch._foreach_add_(denominators, 1e-3)
        torch._foreach_addcdiv_(parameters, gradients, denominators, -0.01)
        torch._foreach_zero_(gradients)
        return torch._foreach_norm(parameters)

    host, device = make(torch.float64), make(torch.float32, "neuron")
    expected = update(*host)
    actual = torch.compile(update, backend="neuron", fullgraph=True)(*device)
    assert steps == [["graph"]]
    torch.testing.assert_close(
        [[t.cpu().double() for t in row] for row in [*device, actual]],
        [*host, list(expected)],
        rtol=1e-5,
        atol=1e-6,
    )


def test_gradients(steps):
    def loss(a, b):
        return sum(t.sum() for t in torch._foreach_mul(torch._foreach_exp(a), b))

    host, device = make(torch.float64)[:2], make(torch.float32, "neuron")[:2]
    for lists, function in (
        (host, loss),
        (device, torch.compile(loss, backend="neuron", fullgraph=True)),
    ):
        for t in [*lists[0], *lists[1]]:
            t.requires_grad_()
        function(*lists).backward()
    for h, d in zip([*host[0], *host[1]], [*device[0], *device[1]], strict=True):
        torch.testing.assert_close(d.grad.cpu().double(), h.grad, rtol=1e-5, atol=1e-6)


def test_products(steps):
    def products(a, b):
        return torch.ops.aten._foreach_mm.default(a, b)

    a = [torch.randn(3, 4, device="neuron"), torch.randn(2, 5, device="neuron")]
    b = [torch.randn(4, 6, device="neuron"), torch.randn(5, 1, device="neuron")]
    actual = torch.compile(products, backend="neuron", fullgraph=True)(a, b)
    assert steps == [["graph"]]
    torch.testing.assert_close(actual, [x @ y for x, y in zip(a, b, strict=True)])
