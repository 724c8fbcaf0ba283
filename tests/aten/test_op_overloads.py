"""The 295 ATen overloads that pipelines, their training and their kin call: native in each form.

``tests/data/op_overloads.tsv`` names each with the phase that needs it and the arguments of one
call: ``f(2, 3)`` is a float32 tensor of that shape, the other letters are in ``Maker``. Whatever
forms PyTorch has of the overload (functional, in-place, out=) are called.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map

import torch_neuronx

ROWS = [
    line.rstrip("\n").split("\t")
    for line in (Path(__file__).parents[1] / "data/op_overloads.tsv").open()
][1:]
CALLS = [(name, arguments) for name, _, arguments in ROWS if name.startswith("aten::")]

# Only the shapes, dtypes and strides of these are the CPU's.
OTHER_VALUES = {
    "bernoulli_.float",
    "bernoulli.float_out",
    "empty.memory_format",
    "empty.out",
    "empty_like.default",
    "empty_like.out",
    "multinomial.default",
    "multinomial.out",
    "new_empty.default",
    "new_empty.out",
    "new_empty_strided.default",
    "new_empty_strided.out",
    "normal.out",
    "normal_.default",
    "rand.default",
    "rand.out",
    "randn.default",
    "randn.generator",
    "randn.generator_out",
    "randn.out",
    "randn_like.default",
    "randn_like.out",
    "uniform.default",
    "uniform.out",
    "uniform_.default",
}


class Maker:
    """Arguments on the CPU; the same ones for the same seed."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)

    def f(self, *size):
        return torch.randn(size, generator=self.generator)

    def p(self, *size):  # positive, below 1
        return torch.rand(size, generator=self.generator) * 0.8 + 0.1

    def c(self, *size):
        return torch.randn(size, dtype=torch.complex64, generator=self.generator)

    def b(self, *size):
        return torch.rand(size, generator=self.generator) > 0.5

    def i(self, high, *size):
        return torch.randint(0, high, size, generator=self.generator)

    def perm(self, n):
        return torch.randperm(n, generator=self.generator)

    def sorted_f(self, n):
        return self.f(n).sort().values

    def tri(self, *size):
        return (self.f(*size) + 3 * torch.eye(*size)).triu()

    def zero(self, *size):
        return torch.zeros(size)

    def int_zero(self, *size):
        return torch.zeros(size, dtype=torch.int32)

    def storage(self, n):
        return self.f(n).untyped_storage()

    def corners(self, n, c, h, w):  # indices of the first elements of 2x2 windows
        rows = torch.arange(h)[:, None] * 4 * w + torch.arange(w) * 2
        return rows.expand(n, c, h, w).contiguous()

    def call(self, text):
        names = {n: getattr(self, n) for n in dir(self) if not n.startswith("__")}
        names |= {n: getattr(torch, n) for n in ("float32", "float64", "int32")}
        arguments = f"(lambda *args, **kwargs: (list(args), kwargs))({text})"
        return eval(arguments, names)  # noqa: S307 (our own data file)


FACTORY = {"dtype", "layout", "device", "pin_memory"}  # what out= forms lose


def overloads(base):
    packet = getattr(torch.ops.aten, base, None)
    return {} if packet is None else {o: getattr(packet, o) for o in packet.overloads()}


def outputs(form):
    return [
        a for a in form._schema.arguments if a.kwarg_only and a.alias_info and a.alias_info.is_write
    ]


def read(form):
    """Name and type of the arguments that are no outputs."""
    out = {a.name for a in outputs(form)}
    return [(a.name, str(a.type)) for a in form._schema.arguments if a.name not in out]


def family(name):
    """The forms that PyTorch has of an overload: functional, in-place (or both None), and out=."""
    base, _, which = name.partition(".")
    itself = overloads(base)[which]
    stem = base.removesuffix("_")
    functional = overloads(stem).get(which)
    in_place = overloads(stem + "_").get(which)
    if functional is not None and read(functional) != read(itself):
        functional = None
    if in_place is not None and read(in_place) != read(itself):
        in_place = None
    wanted = [x for x in read(itself) if x[0] not in FACTORY]
    out = next(
        (
            form
            for form in overloads(stem).values()
            if outputs(form) and read(form) in (wanted, read(itself))
        ),
        None,
    )
    return functional, in_place, out


def cases():
    seen = set()
    for name, arguments in CALLS:
        functional, in_place, out = family(name.removeprefix("aten::"))
        assert functional is not None or in_place is not None, name
        for form in (functional, in_place, out):
            if form is not None and form not in seen:
                seen.add(form)
                # The values of an out= form are those of the other one.
                oracle = (functional or in_place) if form is out else form
                yield pytest.param(form, oracle, arguments, id=str(form).removeprefix("aten."))


def on_device(value):
    def move(x):
        if isinstance(x, torch.UntypedStorage):
            return torch.tensor([], dtype=torch.uint8).set_(x).to("neuron").untyped_storage()
        return x.to("neuron") if isinstance(x, torch.Tensor) else x

    return tree_map(move, value)


def compare(actual, expected, name, strides=True):
    got, want = tree_flatten(actual)[0], tree_flatten(expected)[0]
    assert len(got) == len(want)
    for a, e in zip(got, want, strict=True):
        if isinstance(e, torch.UntypedStorage):
            continue
        if not isinstance(e, torch.Tensor):
            assert a == pytest.approx(e)
            continue
        assert a.device.type == "neuron"
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        assert not strides or a.stride() == e.stride()
        if name not in OTHER_VALUES:
            # Sums of a few dozen terms in another order: some ULP of values near 1.
            torch.testing.assert_close(a.cpu(), e, rtol=2e-5, atol=2e-5, equal_nan=True)


@pytest.mark.parametrize(("form", "oracle", "arguments"), list(cases()))
def test_form(form, oracle, arguments):
    name = str(form).removeprefix("aten.")
    host_args, host_kwargs = Maker().call(arguments)
    args, kwargs = on_device(Maker().call(arguments))
    expected = oracle(*host_args, **host_kwargs)
    if form is not oracle:
        kwargs = {n: v for n, v in kwargs.items() if n in {x for x, _ in read(form)}}
        results = list(expected) if isinstance(expected, (tuple, list)) else [expected]
        if "List" in str(outputs(form)[0].type):
            results = [results if isinstance(results[0], torch.Tensor) else results[0]]
        results = results[: len(outputs(form))]  # then what is written besides
        empty = tree_map(lambda t: torch.empty_like(t, device="neuron"), results)
        kwargs |= dict(zip([a.name for a in outputs(form)], empty, strict=True))
    elif any(a.name == "device" for a in form._schema.arguments):
        kwargs["device"] = "neuron"
    torch_neuronx.clear_op_tracking()
    actual = form(*args, **kwargs)
    assert torch_neuronx.get_fallback_ops() == []
    if form is not oracle:
        compare(empty, results, name, strides=False)
    else:
        compare(actual, expected, name)
        compare(args, host_args, name)  # what is written, and what must not be


def test_table_is_whole():
    assert len(ROWS) == 295
    assert {phase for _, phase, _ in ROWS} == {"klein", "inference", "training"}
    # Marks of the profiler have no tensors: they run as they do on every device.
    assert [name for name, _, _ in ROWS if not name.startswith("aten::")] == [
        "profiler::_record_function_exit._RecordFunction",
        "profiler::_record_function_enter_new.default",
    ]
