"""Collectives against the same computed on the CPU from every rank's known input."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

Ranks = Callable[..., list[str]]
Run = Callable[..., list[subprocess.CompletedProcess[str]]]

INPUTS = """
def values(r, dtype, n):
    g = torch.Generator().manual_seed(r)
    if dtype.is_floating_point:
        return torch.randn(n, generator=g).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 9, (n,), generator=g).to(dtype)

def everyone(dtype, n):
    return [values(r, dtype, n) for r in range(size)]
"""


@pytest.mark.parametrize("size", [1, 2, 3])
def test_reductions(ranks: Ranks, size: int) -> None:
    """Sizes around the limits of the direct way and of a buffer; sums in the order of the ranks."""
    ranks(
        INPUTS
        + """
from functools import reduce
O = dist.ReduceOp
functions = {O.SUM: torch.add, O.PRODUCT: torch.mul, O.MIN: torch.minimum, O.MAX: torch.maximum}
for dtype in [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64,
              torch.int32, torch.int16, torch.int8, torch.uint8]:
    wide = torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
    for n in [0, 1, 1000, 20011, 300007]:
        if n > 2000 and dtype not in (torch.float32, torch.bfloat16):
            continue
        all_inputs = everyone(dtype, n)
        for op, function in functions.items():
            want = reduce(function, [x.to(wide) for x in all_inputs]).to(dtype)
            x = all_inputs[rank].to("neuron")
            dist.all_reduce(x, op)
            torch.testing.assert_close(x.cpu(), want, rtol=0, atol=0)
        if n % size == 0:
            out = torch.empty(n // size, dtype=dtype, device="neuron")
            dist.reduce_scatter_tensor(out, all_inputs[rank].to("neuron"))
            want = reduce(torch.add, [x.to(wide) for x in all_inputs]).to(dtype)
            torch.testing.assert_close(out.cpu(), want.chunk(size)[rank] if n else want,
                                       rtol=0, atol=0)
bits = everyone(torch.int32, 50)
for op, function in {O.BAND: torch.bitwise_and, O.BOR: torch.bitwise_or,
                     O.BXOR: torch.bitwise_xor}.items():
    x = bits[rank].to("neuron")
    dist.all_reduce(x, op)
    assert torch.equal(x.cpu(), reduce(function, bits))
flags = everyone(torch.bool, 50)
x = flags[rank].to("neuron")
dist.all_reduce(x)
assert torch.equal(x.cpu(), reduce(torch.logical_or, flags))
x = torch.full((3,), float(rank), device="neuron")
dist.all_reduce(x, O.AVG)
assert x.tolist() == [(size - 1) / 2] * 3
x = torch.full((3,), 1.0, device="neuron")
dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
assert x.tolist() == [0.5 * size] * 3
x = torch.full((2,), complex(rank, 1), device="neuron")
dist.all_reduce(x)
assert x.cpu().tolist() == [complex(size * (size - 1) / 2, size)] * 2
x = torch.tensor([1.0, float("nan") if rank == 0 else 2.0], device="neuron")
dist.all_reduce(x, O.MAX)
assert x[0].item() == 1 and x[1].isnan().item()
""",
        size=size,
    )


@pytest.mark.parametrize("size", [2, 3])
def test_movement(ranks: Ranks, size: int) -> None:
    """Gathers, scatters, exchanges; list forms, strided tensors, sub-groups, objects."""
    ranks(
        INPUTS
        + """
assert torch.neuron.current_device() == rank and torch.neuron.device_count() == size
n = 200003
inputs = everyone(torch.float32, n)
mine = inputs[rank].to("neuron")
out = torch.empty(size * n, device="neuron")
dist.all_gather_into_tensor(out, mine)
assert torch.equal(out.cpu(), torch.cat(inputs))
parts = [torch.empty(n, device="neuron") for _ in range(size)]
work = dist.all_gather(parts, mine, async_op=True)
work.wait()
assert all(torch.equal(a.cpu(), b) for a, b in zip(parts, inputs))
grid = torch.full((4, 6), float(rank), device="neuron")
dist.broadcast(grid[:, ::2], size - 1)
assert grid[:, ::2].unique().tolist() == [size - 1] and grid[:, 1::2].unique().tolist() == [rank]
dist.all_reduce(grid.t())
got = [torch.empty(n, device="neuron") for _ in range(size)] if rank == 1 else None
dist.gather(mine, got, dst=1)
assert rank != 1 or all(torch.equal(a.cpu(), b) for a, b in zip(got, inputs))
piece = torch.empty(n, device="neuron")
dist.scatter(piece, [x.to("neuron") for x in inputs] if rank == 0 else None, src=0)
assert torch.equal(piece.cpu(), inputs[rank])
total = mine.clone()
dist.reduce(total, 0)
assert torch.equal(total.cpu(), sum(inputs[1:], inputs[0]) if rank == 0 else inputs[rank])
send = [rank + r + 1 for r in range(size)]  # rows to each rank
rows = torch.full((sum(send), 70001), float(rank), device="neuron")
back = torch.empty(sum(send), 70001, device="neuron")
dist.all_to_all_single(back, rows, [r + rank + 1 for r in range(size)], send)
assert back[:, 5].tolist() == [float(r) for r in range(size) for _ in range(r + rank + 1)]
lists = [torch.empty(3, device="neuron") for _ in range(size)]
dist.all_to_all(lists, [torch.full((3,), 10.0 * rank + r, device="neuron") for r in range(size)])
assert [x[0].item() for x in lists] == [10.0 * r + rank for r in range(size)]
group = dist.new_group([0, 1])
if rank < 2:
    x = torch.ones(5, device="neuron")
    dist.all_reduce(x, group=group)
    assert x.tolist() == [2.0] * 5
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": r} for r in range(size)]
dist.barrier()
x = torch.zeros(4, device="neuron")
for _ in range(50):  # streams change, the order stays
    x += 1
    dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True).wait()
    dist.all_reduce(x, dist.ReduceOp.MIN)
assert x.tolist() == [50.0] * 4
y = torch.ops._c10d_functional.all_reduce(mine, "sum", dist.group.WORLD.group_name)
y = torch.ops._c10d_functional.wait_tensor(y)
assert torch.equal(y.cpu(), sum(inputs[1:], inputs[0]))
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor
mesh = DeviceMesh("neuron", list(range(size)))
whole = torch.arange(24.0).reshape(6, 4)
shared = distribute_tensor(whole.to("neuron"), mesh, [Shard(0)])
assert torch.equal(shared.full_tensor().cpu(), whole)
""",
        size=size,
    )


def test_dead_rank(run_ranks: Run) -> None:
    """The end of a process is noticed long before the group's timeout."""
    code = """
dist.barrier()
if rank == 1:
    os.kill(os.getpid(), 9)
x = torch.ones(4, device="neuron")
work = dist.all_reduce(x, async_op=True)
try:
    x.add_(1); work.wait(timedelta(seconds=50)); print("no error")
except RuntimeError as error:
    print(error)
os._exit(0)
"""
    results = run_ranks(code, seconds=50, ok=False)
    assert "all_reduce number 2" in results[0].stdout
    assert "the process of rank 1 has ended" in results[0].stdout
