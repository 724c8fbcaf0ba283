"""A group over two hosts: network namespaces joined by a veth pair, each with PIDs of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.distributed.conftest import ROOT

ADDRESSES = ("10.213.7.1", "10.213.7.2")


class Host:
    """A process that holds a network namespace and a PID namespace open."""

    def __init__(self) -> None:
        # The shell is process 1 of the namespace; it says when all is set up.
        command = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        self.holder = subprocess.Popen(
            [*command, "sh", "-c", "echo up; exec sleep 600"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.holder.stdout is not None and self.holder.stderr is not None
        if self.holder.stdout.readline() != "up\n":
            raise OSError(self.holder.stderr.read().strip())
        children = Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        self.pid = int(children.read_text())

    def command(self, *command: str) -> list[str]:
        spaces = ["--net", "--pid", "--mount", f"--wd={ROOT}"]
        return ["nsenter", f"--target={self.pid}", *spaces, *command]

    def run(self, *command: str) -> None:
        subprocess.run(self.command(*command), check=True, capture_output=True, text=True)

    def close(self) -> None:
        self.holder.kill()
        self.holder.communicate()


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    for tool in ("ip", "unshare", "nsenter"):
        if shutil.which(tool) is None:
            pytest.skip(f"the tool {tool!r} is not installed")
    with ExitStack() as stack:
        try:
            both = (Host(), Host())
        except OSError as error:
            pytest.skip(f"namespaces are not permitted: {error}")
        for host in both:
            stack.callback(host.close)
        pair = ["link", "add", "veth0", "netns", str(both[0].pid), "type", "veth"]
        pair += ["peer", "name", "veth0", "netns", str(both[1].pid)]
        made = subprocess.run(["ip", *pair], capture_output=True, text=True)
        if made.returncode != 0:
            pytest.skip(f"a veth pair is not permitted: {made.stderr.strip()}")
        for host, address in zip(both, ADDRESSES, strict=True):
            host.run("ip", "address", "add", f"{address}/24", "dev", "veth0")
            host.run("ip", "link", "set", "veth0", "up")
            host.run("ip", "link", "set", "lo", "up")
        yield both


CODE = """
import os, torch, torch.distributed as dist
from datetime import timedelta
from functools import reduce
rank, size = int(os.environ["RANK"]), 3
dist.init_process_group("neuron", init_method="tcp://10.213.7.1:29517", rank=rank, world_size=size,
                        timeout=timedelta(seconds=60))
# Two ranks on the first host, one on the second
assert torch.neuron.current_device() == [0, 1, 0][rank]
O = dist.ReduceOp
def values(r, dtype, n):
    g = torch.Generator().manual_seed(r)
    if dtype.is_floating_point:
        return torch.randn(n, generator=g).to(dtype)
    return torch.randint(0, 9, (n,), generator=g).to(dtype)
for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int8):
    wide = torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
    for n in (0, 6, 3000, 1500003 if dtype == torch.bfloat16 else 6):
        inputs = [values(r, dtype, n) for r in range(size)]
        operations = {O.SUM: torch.add, O.PRODUCT: torch.mul, O.MIN: torch.minimum}
        for op, function in operations.items():
            x = inputs[rank].to("neuron")
            dist.all_reduce(x, op)
            # (rank 0 with rank 1) with rank 2 is the order of the ranks here: the same bits.
            want = reduce(function, [t.to(wide) for t in inputs]).to(dtype)
            torch.testing.assert_close(x.cpu(), want, rtol=0, atol=0)
        if n % size == 0:
            out = torch.empty(n // size, dtype=dtype, device="neuron")
            dist.reduce_scatter_tensor(out, inputs[rank].to("neuron"))
            want = reduce(torch.add, [t.to(wide) for t in inputs]).to(dtype)
            assert torch.equal(out.cpu(), want.chunk(size)[rank] if n else want)
        mine = inputs[rank].to("neuron")
        parts = [torch.empty(n, dtype=dtype, device="neuron") for _ in range(size)]
        dist.all_gather(parts, mine)
        assert all(torch.equal(a.cpu(), b) for a, b in zip(parts, inputs))
        for root in range(size):
            x = mine.clone()
            dist.broadcast(x, root)
            assert torch.equal(x.cpu(), inputs[root])
            got = [torch.zeros_like(x) for _ in range(size)] if rank == root else None
            dist.gather(mine, got, dst=root)
            assert rank != root or all(torch.equal(a.cpu(), b) for a, b in zip(got, inputs))
            x = mine.clone()
            dist.reduce(x, root)
            want = reduce(torch.add, [t.to(wide) for t in inputs]).to(dtype)
            assert torch.equal(x.cpu(), want if rank == root else inputs[rank])
            x = torch.empty_like(mine)
            given = [t.to("neuron") for t in inputs] if rank == root else None
            dist.scatter(x, given, src=root)
            assert torch.equal(x.cpu(), inputs[rank])
x = torch.full((4,), float(rank), device="neuron")
dist.all_reduce(x, O.AVG)
assert x.tolist() == [1.0] * 4
x = torch.tensor([rank * 3], device="neuron", dtype=torch.bfloat16)
dist.all_reduce(x, O.AVG)
assert x.item() == 3
send = [rank + r + 1 for r in range(size)]
rows = torch.full((sum(send), 5), float(rank), device="neuron")
back = torch.empty(sum(send), 5, device="neuron")
dist.all_to_all_single(back, rows, [r + rank + 1 for r in range(size)], send)
assert back[:, 0].tolist() == [float(r) for r in range(size) for _ in range(r + rank + 1)]
objects = [None] * size
dist.all_gather_object(objects, ("rank", rank))
assert objects == [("rank", r) for r in range(size)]
dist.barrier()
group = dist.new_group([0, 1])
if rank < 2:  # on one host
    y = torch.ones(3, device="neuron")
    dist.send(y * 5, 1, group=group) if rank == 0 else dist.recv(y, 0, group=group)
    dist.all_reduce(y, group=group)
    assert y.tolist() == [6.0] * 3
try:
    dist.send(x, 2) if rank == 0 else dist.recv(x, 0) if rank == 2 else None
    assert rank == 1
except NotImplementedError as error:
    assert "between hosts" in str(error)
# A disagreement and a lost rank are known on every host.
group = dist.new_group(timeout=timedelta(seconds=30))
try:
    dist.all_reduce(torch.ones(4 if rank < 2 else 5, device="neuron"), group=group)
    torch.neuron.synchronize()
    raise AssertionError("no error")
except RuntimeError as error:
    assert "ranks do not agree" in str(error) and "5 elements" in str(error), error
dist.barrier()
if rank == 2:
    os._exit(7)
try:
    dist.all_reduce(torch.ones(4, device="neuron"))
    torch.neuron.synchronize()
    raise AssertionError("no error")
except RuntimeError as error:
    print(error)
print("done", flush=True)
os._exit(0)
"""


def test_two_hosts(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    processes = []
    for rank, (host, local, count) in enumerate(
        [(hosts[0], 0, 2), (hosts[0], 1, 2), (hosts[1], 0, 1)]
    ):
        env = os.environ | {"RANK": str(rank), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "3"}
        env |= {"LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(count)}
        env |= {"GLOO_SOCKET_IFNAME": "veth0", "TP_SOCKET_IFNAME": "veth0"}
        processes.append(
            subprocess.Popen(
                host.command(sys.executable, "-c", textwrap.dedent(CODE)),
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        out = [process.communicate(timeout=150)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert processes[2].returncode == 7, out[2]
    for text in out[:2]:
        assert "done" in text and "all_reduce" in text and "hosts of ranks 0, 2" in text, out
