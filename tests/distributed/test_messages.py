"""send, recv and their forms: order, tags, streams, sizes beyond the shared memory, errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Ranks = Callable[..., list[str]]


def test_dtypes_sizes_and_gaps(ranks: Ranks) -> None:
    """Sizes around the ring of a channel; what is received has the sender's bits."""
    ranks(
        """
other = 1 - rank
for dtype in [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64,
              torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64]:
    for n in [0, 1, 1000, 300007]:
        if n > 1000 and dtype not in (torch.float32, torch.uint8):
            continue
        values = torch.randint(0, 2, (n,), generator=torch.Generator().manual_seed(n)).to(dtype)
        if rank == 0:
            dist.send(values.to("neuron"), 1)
        else:
            got = torch.full((n,), 0, dtype=dtype, device="neuron")
            assert dist.recv(got, 0) == 0
            assert torch.equal(got.cpu(), values), (dtype, n)
grid = torch.zeros(6, 8, device="neuron")
if rank == 0:
    dist.send(torch.arange(24.0, device="neuron").reshape(4, 6).t(), 1)
else:
    dist.recv(grid[:, ::2], 0)
    want = torch.zeros(6, 8)
    want[:, ::2] = torch.arange(24.0).reshape(4, 6).t()
    assert torch.equal(grid.cpu(), want)
"""
    )


def test_order_and_tags(ranks: Ranks) -> None:
    """Messages of a tag keep their order; a tag that is asked for later does not block others."""
    ranks(
        """
n = 100003  # three of them do not fit into the ring
if rank == 0:
    works = [dist.isend(torch.full((n,), float(i), device="neuron"), 1, tag=i % 3)
             for i in range(9)]
    for work in works:
        work.wait()
else:
    for tag in (2, 0, 1):
        for i in range(tag, 9, 3):
            x = torch.empty(n, device="neuron")
            dist.recv(x, 0, tag=tag)
            assert x[0].item() == i and x[-1].item() == i, (tag, i)
# Receives that were issued before, in another order than the sends
if rank == 1:
    got = [torch.empty(n, device="neuron") for _ in range(4)]
    works = [dist.irecv(x, 0, tag=i) for i, x in enumerate(got)]
    for work in works:
        work.wait()
    assert [x.mean().item() for x in got] == [0, 1, 2, 3]
else:
    for i in (3, 1, 0, 2):
        dist.send(torch.full((n,), float(i), device="neuron"), 1, tag=i)
"""
    )


def test_stream_order(ranks: Ranks) -> None:
    """A message takes what the stream computed before it; what follows a receive waits for it."""
    ranks(
        """
other = 1 - rank
x = torch.ones(512, 512, device="neuron")
for i in range(10):
    y = torch.full((512, 512), float(rank + i), device="neuron")
    for _ in range(5):
        y = y @ torch.eye(512, device="neuron")
    got = torch.empty_like(y)
    send, receive = dist.isend(y, other), dist.irecv(got, other)
    receive.wait()
    z = got * 2
    send.wait()
    y.zero_()  # after the wait it may change
    assert z[3, 3].item() == 2 * (other + i), (i, z[3, 3].item())
side = torch.neuron.Stream()
with torch.neuron.stream(side):
    a = torch.full((512, 512), float(rank), device="neuron") @ torch.eye(512, device="neuron")
    b = torch.empty_like(a)
    works = [dist.isend(a, other), dist.irecv(b, other)]
    for work in works:
        work.wait()
    c = b + 1
side.synchronize()
assert c[0, 0].item() == other + 1
# Collectives between messages
t = torch.ones(1000, device="neuron")
if rank == 0:
    work = dist.isend(t * 3, 1)
    dist.all_reduce(t)
    work.wait()
else:
    dist.all_reduce(t)
    dist.recv(t, 0)
    assert t.sum().item() == 3000
"""
    )


@pytest.mark.parametrize("size", [2, 3])
def test_batches(ranks: Ranks, size: int) -> None:
    """A ring of messages too big for the shared memory, in any order, with one Work."""
    ranks(
        """
right, left = (rank + 1) % size, (rank - 1) % size
n = 200003
for flip in (False, True):
    mine = torch.full((n,), float(rank), device="neuron")
    got, small = torch.empty(n, device="neuron"), torch.empty(3, device="neuron")
    ops = [dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.irecv, got, left),
           dist.P2POp(dist.isend, mine[:3] + 10, left, tag=5),
           dist.P2POp(dist.irecv, small, right, tag=5)]
    works = dist.batch_isend_irecv(ops[::-1] if flip else ops)
    for work in works:
        work.wait()
    assert got.unique().tolist() == [left] and small.tolist() == [right + 10.0] * 3
assert all(work.is_completed() for work in works)
# The ring without a batch
got.zero_()
work = dist.isend(mine, right)
dist.recv(got, left)
work.wait()
assert got.unique().tolist() == [left]
# To itself
own = torch.empty(n, device="neuron")
works = [dist.isend(mine, rank), dist.irecv(own, rank)]
for work in works:
    work.wait()
assert torch.equal(own, mine)
# A sub-group's ranks are its own
group = dist.new_group([1, 0])
if rank < 2:
    x = torch.full((4,), float(rank), device="neuron")
    if rank == 1:
        dist.send(x, 0, group=group)
    else:
        dist.recv(x, 1, group=group)
        assert x.tolist() == [1.0] * 4
dist.destroy_process_group(group) if rank < 2 else None
""",
        size=size,
    )


def test_any_source(ranks: Ranks) -> None:
    ranks(
        """
if rank == 0:
    seen = []
    for _ in range(2 * (size - 1)):
        x = torch.empty(4, device="neuron")
        source = dist.recv(x, tag=7)
        assert x[0].item() == source
        seen.append(source)
    assert sorted(seen) == sorted(2 * list(range(1, size)))
    x = torch.empty(4, device="neuron")
    work = dist.irecv(x, tag=8)
    work.wait()
    assert work._source_rank() == 1 and x[0].item() == 1
else:
    for _ in range(2):
        dist.send(torch.full((4,), float(rank), device="neuron"), 0, tag=7)
    if rank == 1:
        dist.send(torch.full((4,), float(rank), device="neuron"), 0, tag=8)
""",
        size=3,
    )


def test_work(ranks: Ranks) -> None:
    """A wait that expires raises and hurts nothing; futures are in stream order."""
    ranks(
        """
x = torch.zeros(4, device="neuron")
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    work = dist.irecv(x, 1)
    assert not work.is_completed()
    try:
        work.wait(timedelta(milliseconds=50))
        raise AssertionError("no error")
    except dist.DistBackendError as error:
        assert "recv number" in str(error) and "within 50 ms" in str(error), error
    store.set("expired", "1")
    work.wait()
    assert x.tolist() == [5.0] * 4 and work.is_success()
    store.delete_key("expired")
    y = torch.zeros(4, device="neuron")
    value = dist.irecv(y, 1).get_future().then(lambda f: f.value()[0] * 2).wait()
    assert value.tolist() == [12.0] * 4
else:
    store.wait(["expired"])
    dist.send(x + 5, 0)
    dist.isend(x + 6, 0).get_future().wait()
try:
    dist.isend(x, group_dst=size)
    raise AssertionError("no error")
except ValueError as error:
    assert "rank 2 is not in the group of 2 ranks" in str(error), error
"""
    )


def test_faults(ranks: Ranks) -> None:
    """Another size, dtype, or no partner: an error on all ranks that says what each was in."""
    out = ranks(
        """
import time
store = dist.distributed_c10d._get_default_store()
x = torch.ones(4, device="neuron")
def attempt(name, timeout, sender, receiver):
    group = dist.new_group(timeout=timedelta(seconds=timeout))
    start = time.monotonic()
    try:
        (sender if rank == 0 else receiver)(group)
        x.cpu()
        dist.all_reduce(x, group=group)
        x.cpu()
        print(name, "no error")
    except RuntimeError as error:
        print(name, type(error).__name__, str(error).replace("\\n", " "))
    if rank == 0:
        store.set("over " + name, "1")
    assert time.monotonic() - start < 20
attempt("size", 30, lambda g: dist.send(x[:3], 1, group=g), lambda g: dist.recv(x, 0, group=g))
attempt("dtype", 30, lambda g: dist.send(x.int(), 1, group=g),
        lambda g: dist.recv(x, 0, group=g))
attempt("timeout", 0.3, lambda g: dist.recv(x, 1, group=g), lambda g: dist.recv(x, 0, group=g))
big = torch.ones(300007, device="neuron")
attempt("full", 0.3, lambda g: (dist.isend(big, 1, group=g).wait(), big.cpu()),
        lambda g: store.wait(["over full"]))
"""
    )
    for rank, text in enumerate(out):
        lines = dict(line.split(" ", 1) for line in text.splitlines())
        assert "3 elements of Float to rank 1" in lines["size"], text
        assert "recv number 1 of 4 elements of Float from rank 0" in lines["size"], text
        assert "4 elements of Int to rank 1" in lines["dtype"], text
        assert "timed out in recv" in lines["timeout"] or "failed" in lines["timeout"], text
        assert f"rank {1 - rank}" in lines["timeout"], text
        assert "DistBackendError" in lines["full"] and "300007 elements" in lines["full"], text
