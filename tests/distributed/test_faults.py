"""Ranks that disagree, hang, die or are interrupted: the others say who, in what, and go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.distributed.conftest import PROLOGUE, ROOT, rank_environment

Ranks = Callable[..., list[str]]
Run = Callable[..., list[subprocess.CompletedProcess[str]]]


def test_disagreement(ranks: Ranks) -> None:
    """Each case in a group of its own; both ranks learn what both are in."""
    out = ranks(
        """
x = torch.ones(4, device="neuron")
out = torch.zeros(8, device="neuron")
O = dist.ReduceOp
cases = {
    "shape": [lambda g: dist.all_reduce(x, group=g), lambda g: dist.all_reduce(out, group=g)],
    "dtype": [lambda g: dist.all_reduce(x, group=g), lambda g: dist.all_reduce(x.int(), group=g)],
    "reduction": [lambda g: dist.all_reduce(x, group=g),
                  lambda g: dist.all_reduce(x, O.MAX, group=g)],
    "root": [lambda g: dist.broadcast(x, 0, group=g), lambda g: dist.broadcast(x, 1, group=g)],
    "collective": [lambda g: dist.all_reduce(x, group=g), lambda g: dist.broadcast(x, 0, group=g)],
    "order": [lambda g: (dist.barrier(group=g), dist.all_reduce(x, group=g)),
              lambda g: (dist.all_reduce(x, group=g), dist.barrier(group=g))],
    "splits": [lambda g: dist.all_to_all_single(x, x.clone(), [1, 3], [1, 3], group=g),
               lambda g: dist.all_to_all_single(x, x.clone(), [2, 2], [2, 2], group=g)],
    "async": [lambda g: dist.all_reduce(x, group=g, async_op=True).wait(),
              lambda g: dist.all_reduce(out, group=g, async_op=True).wait()],
}
for name, calls in cases.items():
    group = dist.new_group(timeout=timedelta(seconds=30))
    dist.barrier(group=group)
    try:
        calls[rank](group)
        x.cpu()  # what a failed collective left is not used silently
        print(name, "no error")
    except RuntimeError as error:
        print(name, str(error).replace("\\n", " "))
    try:
        dist.all_reduce(x, group=group)
        x.cpu()
        print("after", name, "no error")
    except RuntimeError as error:
        assert name == "order" or "failed before" in str(error), error
    dist.destroy_process_group(group)
dist.all_reduce(x)  # the other groups go on
"""
    )
    for text in out:
        lines = dict(line.split(" ", 1) for line in text.splitlines())
        assert "all_reduce number 2 of 4 elements of Float" in lines["shape"]
        assert "all_reduce number 2 of 8 elements of Float" in lines["shape"]
        assert "elements of Int" in lines["dtype"] and "elements of Float" in lines["dtype"]
        assert "SUM" in lines["reduction"] and "MAX" in lines["reduction"]
        assert "root 0" in lines["root"] and "root 1" in lines["root"]
        assert "all_reduce number 2" in lines["collective"]
        assert "broadcast number 2" in lines["collective"]
        assert "barrier number 2" in lines["order"] and "all_reduce number 2" in lines["order"]
        assert "all_to_all_single number 2: rank" in lines["splits"]
        assert "8 elements" in lines["async"] and "4 elements" in lines["async"]
        assert "rank 0" in lines["shape"] and "rank 1" in lines["shape"]
        assert "no error" not in text


def test_a_rank_that_does_not_come(ranks: Ranks) -> None:
    """Within the group's timeout all that wait say who is missing and where it was last."""
    out = ranks(
        """
import time
store = dist.distributed_c10d._get_default_store()
group = dist.new_group(timeout=timedelta(seconds=0.5))
x = torch.ones(4, device="neuron")
dist.all_reduce(x, group=group)
x.cpu()
if rank == 1:
    store.wait(["late"])
else:
    start = time.monotonic()
    try:
        dist.broadcast(x, 0, group=group)
        x.cpu()
        dist.all_reduce(x, group=group)
        x.cpu()
    except RuntimeError as error:
        print(error)
    assert time.monotonic() - start < 10
    if rank == 0:
        store.set("late", "1")
dist.barrier()
# A rank that has left its group is noticed long before the timeout.
group = dist.new_group(timeout=timedelta(seconds=50))
if rank == 1:
    dist.destroy_process_group(group)
else:
    try:
        dist.all_reduce(x, group=group)
        x.cpu()
    except RuntimeError as error:
        print(error)
""",
        size=3,
    )
    for rank in (0, 2):
        assert "rank 1 did not come; its last collective is all_reduce number 1" in out[rank]
        assert "rank 1 has left the group" in out[rank]


def test_detail(run_ranks: Run) -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL compares shapes too; all else works as without it."""
    results = run_ranks(
        """
x = torch.arange(6.0, device="neuron")
dist.all_reduce(x)
got = torch.empty_like(x)
works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1 - rank),
                                dist.P2POp(dist.irecv, got, 1 - rank)])
[work.wait() for work in works]
assert torch.equal(x, got)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 2).to("neuron"))
model(x).sum().backward()
try:
    dist.all_reduce(x.view(2, 3) if rank else x.view(3, 2))
    x.cpu()
except RuntimeError as error:
    print(error)
""",
        env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
    )
    for result in results:
        # torch's own wrapper finds it first; without Gloo it would be the backend.
        assert "mismatch" in result.stdout
        assert "2 3" in result.stdout and "3 2" in result.stdout


def test_interrupt_ends_all_ranks(tmp_path: Path) -> None:
    """Ctrl-C reaches ranks that wait for a collective or a message that never comes."""
    code = """
pair = dist.new_group([0, 1])  # rank 2's end is nothing to it
dist.barrier()
x = torch.ones(4, device="neuron")
print("ready", flush=True)
if rank == 0:  # neither takes part nor ends
    import time
    time.sleep(100)
try:
    dist.all_reduce(x, group=pair) if rank == 1 else dist.recv(x, 0)
    x.cpu()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROLOGUE + code],
            env=rank_environment(rank, 3, tmp_path / "store", SECONDS="300"),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes[1:]:
            while Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "S":
                time.sleep(0.05)  # until it waits
        for process in processes[::-1]:  # rank 0's end would be an error of its own to the others
            process.send_signal(signal.SIGINT)
            while process is processes[1] and any(p.poll() is None for p in processes[1:]):
                time.sleep(0.05)
        out = [process.communicate(timeout=30)[0] for process in processes]
        assert all(process.returncode != 0 for process in processes)
        assert out[1:] == ["interrupted\n"] * 2
    finally:
        for process in processes:
            process.kill()


def test_killed_ranks_leave_nothing(tmp_path: Path) -> None:
    """After kill -9 no name is left in /dev/shm and no process maps the group's memory."""
    before = set(os.listdir("/dev/shm"))
    code = """
dist.all_reduce(torch.ones(1000, device="neuron"))
torch.neuron.synchronize()
for line in open("/proc/self/maps"):
    if "torch_neuronx_group" in line:
        print(line.split()[4], flush=True)
import time
time.sleep(100)
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROLOGUE + code],
            env=rank_environment(rank, 2, tmp_path / "store", SECONDS="60"),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        inodes = set()
        for process in processes:
            assert process.stdout is not None
            inodes.add(process.stdout.readline().strip())
        assert len(inodes) == 1 and inodes != {""}
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    left = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines = maps.read_text().splitlines()
        except OSError:  # it has just ended, or is another user's
            continue
        left += [line for line in lines if "torch_neuronx_group" in line]
    assert not [line for line in left if line.split()[4] in inodes]
    # Others may come and go there meanwhile; none may be ours.
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "neuron" in name]
