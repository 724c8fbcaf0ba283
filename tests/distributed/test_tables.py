"""Every collective x dtype x shape (empty, strided) x group, against what the ranks hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Ranks = Callable[..., list[str]]

VALUES = """
from functools import reduce
FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
MOVED = FLOATS + INTS + [torch.complex64, torch.float8_e4m3fn]

def value(r, dtype, shape):
    g = torch.Generator().manual_seed(100 * r + len(shape))
    if dtype in (torch.complex64,):
        return torch.randn(shape, generator=g, dtype=dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=g).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 9, shape, generator=g).to(dtype)

# What a tensor of the shape looks like in memory: dense, every second column, transposed.
def laid(x, kind):
    x = x.to("neuron")
    if kind == "gaps":
        wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype, device="neuron")
        wide[..., ::2] = x
        return wide[..., ::2]
    if kind == "transposed":
        return x.t().contiguous().t()
    return x

CASES = [((), "dense"), ((0,), "dense"), ((4, 6), "dense"), ((4, 6), "gaps"),
         ((4, 6), "transposed")]
same = lambda got, want, *what: (
    got.shape == want.shape and torch.equal(bits(got.cpu()), bits(want))) or fail(got, want, what)
def bits(x):
    return x.contiguous().reshape(-1).view(torch.uint8) if x.numel() else x.reshape(-1).float()
def fail(got, want, what):
    raise AssertionError((what, got.cpu(), want))
"""


@pytest.mark.parametrize("size", [2, 3])
def test_movement(ranks: Ranks, size: int) -> None:
    ranks(
        VALUES
        + """
groups = [list(range(size)), [1, 0]] if size == 2 else [[0, 1, 2], [0, 2]]
for members in groups:
    group = dist.new_group(members)
    if rank not in members:
        continue
    # torch sorts the ranks of a group.
    n, me = len(members), sorted(members).index(rank)
    for dtype in MOVED:
        for shape, kind in CASES if dtype in (torch.float32, torch.bool) else CASES[2:4]:
            what = (members, dtype, shape, kind)
            all_values = [value(r, dtype, shape) for r in range(n)]
            mine = laid(all_values[me], kind)
            new = lambda *s: laid(torch.zeros(s, dtype=dtype), kind if len(s) == 2 else "dense")
            x = mine.clone(memory_format=torch.preserve_format)
            dist.broadcast(x, group=group, group_src=n - 1)
            same(x, all_values[n - 1], "broadcast", *what)
            outs = [new(*shape) for _ in range(n)]
            dist.all_gather(outs, mine, group=group)
            for got, want in zip(outs, all_values):
                same(got, want, "all_gather", *what)
            gathered = [new(*shape) for _ in range(n)] if me == 0 else None
            dist.gather(mine, gathered, group=group, group_dst=0)
            for got, want in zip(gathered or [], all_values):
                same(got, want, "gather", *what)
            piece = new(*shape)
            dist.scatter(piece, [laid(v, kind) for v in all_values] if me == n - 1 else None,
                         group=group, group_src=n - 1)
            same(piece, all_values[me], "scatter", *what)
            outs = [new(*shape) for _ in range(n)]
            # What rank a sends to rank b: a's values, moved on by b.
            give = lambda a, b: all_values[(a + b) % n]
            dist.all_to_all(outs, [laid(give(me, b), kind) for b in range(n)], group=group)
            for a, got in enumerate(outs):
                same(got, give(a, me), "all_to_all", *what)
            if not shape:
                continue
            big = new(n * shape[0], *shape[1:])
            dist.all_gather_into_tensor(big, mine, group=group)
            same(big, torch.cat(all_values), "all_gather_into_tensor", *what)
            rows = laid(torch.cat([give(me, b) for b in range(n)]), kind)
            back = torch.zeros_like(rows)
            dist.all_to_all_single(back, rows, group=group)
            same(back, torch.cat([give(a, me) for a in range(n)]), "all_to_all_single", *what)
    dist.barrier(group=group)
    dist.destroy_process_group(group)
""",
        size=size,
    )


@pytest.mark.parametrize("size", [2, 3])
def test_reductions(ranks: Ranks, size: int) -> None:
    """Sums of the 16 bit dtypes are rounded once; all ranks have the bits of the ranks' order."""
    ranks(
        VALUES
        + """
O = dist.ReduceOp
members = [0, size - 1]
group = dist.new_group(members)
for dtype in FLOATS + INTS:
    wide = torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
    if dtype == torch.bool:
        functions = {O.SUM: torch.logical_or, O.MIN: torch.logical_and, O.MAX: torch.logical_or,
                     O.PRODUCT: torch.logical_and, O.BXOR: torch.logical_xor}
    else:
        functions = {O.SUM: torch.add, O.PRODUCT: torch.mul, O.MIN: torch.minimum,
                     O.MAX: torch.maximum}
        if not dtype.is_floating_point:
            functions |= {O.BAND: torch.bitwise_and, O.BOR: torch.bitwise_or,
                          O.BXOR: torch.bitwise_xor}
        else:
            n_ranks = lambda f: f
            functions[O.AVG] = "average"
    for g, ranks in ((None, range(size)), (group, members)):
        if rank not in ranks:
            continue
        n, me = len(ranks), list(ranks).index(rank)
        for op, function in functions.items():
            full = op == O.SUM and dtype in (torch.float32, torch.bool)
            for shape, kind in CASES if full else CASES[2:3]:
                what = (n, dtype, op, shape, kind)
                values = [value(r, dtype, shape) for r in range(n)]
                def result(inputs):
                    inputs = [x.to(wide) for x in inputs]
                    if function == "average":
                        return (reduce(torch.add, inputs) / n).to(dtype)
                    return reduce(function, inputs).to(dtype)
                want = result(values)
                x = laid(values[me], kind)
                dist.all_reduce(x, op, group=g)
                same(x, want, "all_reduce", *what)
                x = laid(values[me], kind)
                dist.reduce(x, op=op, group=g, group_dst=n - 1)
                same(x, want if me == n - 1 else values[me], "reduce", *what)
                if op not in (O.SUM, O.AVG):
                    continue
                inputs = lambda r: [values[(r + b) % n] for b in range(n)]
                want = result([inputs(a)[me] for a in range(n)])
                out = laid(torch.zeros(shape, dtype=dtype), kind)
                dist.reduce_scatter(out, [laid(v, kind) for v in inputs(me)], op, group=g)
                same(out, want, "reduce_scatter", *what)
                if shape:
                    out.zero_()
                    dist.reduce_scatter_tensor(out, laid(torch.cat(inputs(me)), kind), op, group=g)
                    same(out, want, "reduce_scatter_tensor", *what)
for bad, dtype in [(O.BAND, torch.float32), (O.AVG, torch.bool), (O.SUM, torch.float8_e4m3fn)]:
    try:
        dist.all_reduce(value(0, dtype, (4,)).to("neuron"), bad)
        raise AssertionError("no error")
    except ValueError as error:
        assert "is not supported by the backend" in str(error), error
""",
        size=size,
    )


def test_objects_coalescing_and_barriers(ranks: Ranks) -> None:
    ranks(
        """
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank, "text": "x" * (1 + 5000 * rank)})
assert [len(o["text"]) for o in objects] == [1, 5001]
got = [None] * size if rank == 1 else None
dist.gather_object(("from", rank), got, dst=1)
assert rank == 0 or got == [("from", 0), ("from", 1)]
shared = [rank, "a", None] if rank == 1 else [None] * 3
dist.broadcast_object_list(shared, src=1)
assert shared == [1, "a", None]
mine = [None]
dist.scatter_object_list(mine, [{"to": 0}, {"to": 1}] if rank == 0 else None, src=0)
assert mine == [{"to": rank}]
if rank == 0:
    dist.send_object_list(["p", {"q": 2}], dst=1)
else:
    pair = [None, None]
    assert dist.recv_object_list(pair, src=0) == 0 and pair == ["p", {"q": 2}]

device = torch.device("neuron", torch.neuron.current_device())
from torch.distributed.distributed_c10d import _coalescing_manager
for arguments in [{}, {"device": device}]:
    a, b = torch.full((5,), 1.0 + rank, device=device), torch.arange(6, device=device)
    with _coalescing_manager(async_ops=True, **arguments) as works:
        dist.all_reduce(a)
        dist.all_reduce(b)
    works.wait()
    assert a.tolist() == [3.0] * 5 and b.tolist() == [0, 2, 4, 6, 8, 10]
    wide, wider = torch.zeros(10, device=device), torch.zeros(12, device=device).long()
    with _coalescing_manager(**arguments):
        dist.all_gather_into_tensor(wide, a + rank)
        dist.all_gather_into_tensor(wider, b)
    assert wide.tolist() == [3.0] * 5 + [4.0] * 5 and wider.tolist() == 2 * b.tolist()
    part, small = torch.zeros(5, device=device), torch.zeros(6, device=device).long()
    with _coalescing_manager(async_ops=True, **arguments) as works:
        dist.reduce_scatter_tensor(part, wide)
        dist.reduce_scatter_tensor(small, wider)
    works.wait()
    assert part.tolist() == [2 * (3.0 + rank)] * 5 and small.tolist() == (2 * b).tolist()
with _coalescing_manager(device=device, async_ops=True) as works:
    dist.broadcast(a, 1)
    dist.broadcast(b, 0)
works.wait()
lists = [[torch.zeros(5, device=device), torch.zeros(2, device=device)] for _ in range(size)]
dist.all_gather_coalesced(lists, [part, part[:2] + 1])
assert [x[0].tolist() for x in lists] == [[2 * (3.0 + r)] * 5 for r in range(size)]
assert [x[1].tolist() for x in lists] == [[2 * (3.0 + r) + 1] * 2 for r in range(size)]

# An error inside is not lost.
group = dist.new_group(timeout=timedelta(seconds=30))
try:
    with _coalescing_manager(group, device, async_ops=True) as works:
        dist.all_reduce(torch.ones(3 + rank, device=device), group=group)
        dist.all_reduce(torch.ones(3, device=device), group=group)
    works.wait()
    torch.ones(1, device=device).cpu()
    raise AssertionError("no error")
except RuntimeError as error:
    assert "elements" in str(error), error

dist.monitored_barrier()
dist.monitored_barrier(timeout=timedelta(seconds=30), wait_all_ranks=True)
group = dist.new_group()
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    try:
        dist.monitored_barrier(group, timedelta(milliseconds=100))
        raise AssertionError("no error")
    except RuntimeError as error:
        assert "monitored_barrier number 1: rank 1 did not come" in str(error), error
    store.set("barrier", "1")
else:
    store.wait(["barrier"])
    try:
        dist.monitored_barrier(group)
        raise AssertionError("no error")
    except RuntimeError as error:
        assert "rank 0 failed" in str(error), error

x = torch.full((3,), 1.0 + rank, device=device)
work = dist.all_reduce(x, async_op=True)
doubled = work.get_future().then(lambda f: f.value()[0] * 2).wait()
assert doubled.tolist() == [6.0] * 3
assert work.wait(timedelta(seconds=30)) and work.is_completed() and work.is_success()
assert work.exception() is None and work.result()[0] is not None
"""
    )
