"""Collectives and messages on neuron tensors against Gloo on CPU tensors, alternating in one run.

python -m benchmarks.collectives [--ranks 2 4 8] [--most 256M] [--rounds 10]

Times are those of rank 0, which waits for each call's end. The bandwidth of a plain copy, measured
by rank 0 alone, tells what the machine allows; a share of it is of the bytes that a rank must at
least read and write.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.measure import Result, alternate, machine, table

ROOT = Path(__file__).resolve().parents[1]
UNITS = {"K": 1 << 10, "M": 1 << 20}


def size_of(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def label_of(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def sizes(most: int) -> list[int]:
    out = []
    size = 1 << 10
    while size <= most:
        out.append(size)
        size *= 4
    if out[-1] < most:
        out.append(most)
    return out


def copy_bandwidth(size: int) -> float:
    """Bytes per second that a copy reads and writes, with one thread."""
    source, target = torch.ones(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8)
    best = min(_timed(lambda: target.copy_(source)) for _ in range(10))
    return 2 * size / best


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def operations(device: str, size: int, group: dist.ProcessGroup) -> dict[str, Callable[[], object]]:
    """`size`: bytes of the whole tensor, float32; each call waits for its end."""
    n, rank = dist.get_world_size(), dist.get_rank()
    whole = torch.ones(max(size // 4 // n, 1) * n, device=device)
    part = torch.ones(whole.numel() // n, device=device)
    wait = torch.neuron.synchronize if device == "neuron" else lambda: None

    def done(
        call: Callable[..., object], *tensors: object, **options: object
    ) -> Callable[[], None]:
        def run() -> None:
            call(*tensors, group=group, **options)
            wait()

        return run

    def ring() -> None:
        other = torch.empty_like(whole)
        works = [
            dist.isend(whole, (rank + 1) % n, group=group),
            dist.irecv(other, (rank - 1) % n, group=group),
        ]
        for work in works:
            work.wait()
        wait()

    return {
        "all_reduce": done(dist.all_reduce, whole),
        "all_gather": done(dist.all_gather_into_tensor, whole, part),
        "reduce_scatter": done(dist.reduce_scatter_tensor, part, whole),
        "broadcast": done(dist.broadcast, whole, 0),
        "send and receive": ring,
    }


def least_traffic(name: str, size: int, ranks: int) -> float:
    """Bytes that one rank must read and write when its peers' memory is as near as its own."""
    return {
        # reads a part of all tensors, writes it, reads the other parts, writes them
        "all_reduce": size * (1 + 1 / ranks) + size * (1 - 1 / ranks),
        "all_gather": 2.0 * size,
        "reduce_scatter": size * (1 + 1 / ranks),
        "broadcast": 2.0 * size,
        "send and receive": 2.0 * size,
    }[name]


def rank_main(most: int, rounds: int) -> None:
    """Every rank runs the same calls; rank 0 prints."""
    dist.init_process_group(
        "cpu:gloo,neuron:neuron",
        init_method=f"file://{os.environ['STORE']}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    group = dist.new_group(backend="neuron")
    gloo = dist.new_group(backend="gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    bandwidth = copy_bandwidth(64 << 20) if rank == 0 else 0.0
    dist.barrier(gloo)
    rows: dict[str, list[tuple[str, dict[str, Result]]]] = {}
    for size in sizes(most):
        ours, theirs = operations("neuron", size, group), operations("cpu", size, gloo)
        calls = max(1, min(100, (1 << 20) // size))
        for name in ours:
            dist.barrier(gloo)
            few = rounds if size <= 16 << 20 else max(2, rounds // 4)
            results = alternate({"neuron": ours[name], "Gloo": theirs[name]}, few, calls)
            rows.setdefault(name, []).append((label_of(size), results))
    if rank == 0:
        print(f"\n{ranks} ranks; a copy moves {bandwidth / 1e9:.1f} GB/s (read and written)\n")
        for name, lines in rows.items():
            shares = ", ".join(
                f"{label} {_share(name, label, results, ranks, bandwidth):.0%}"
                for label, results in lines
                if label in ("16 MiB", "64 MiB", "256 MiB")
            )
            print(table(name, lines, 1e-6, "us"))
            print(
                f"\nOf the copy's bandwidth: {shares or 'no size of 16 MiB or more'}\n", flush=True
            )
    dist.barrier(gloo)
    dist.destroy_process_group()


def _share(
    name: str, label: str, results: dict[str, Result], ranks: int, bandwidth: float
) -> float:
    size = int(label.split()[0]) << 20
    return least_traffic(name, size, ranks) / results["neuron"].least / bandwidth


def launch(ranks: int, arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        processes = []
        for rank in range(ranks):
            env = os.environ | {
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(ranks),
                "OMP_NUM_THREADS": "1",
                "STORE": f"{directory}/store",
            }
            command = [sys.executable, "-m", "benchmarks.collectives", "--rank", *arguments]
            processes.append(subprocess.Popen(command, cwd=ROOT, env=env))
        try:
            status = [process.wait() for process in processes]
        finally:
            for process in processes:
                process.kill()
        if any(status):
            raise SystemExit(f"{ranks} ranks: exit statuses {status}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Collectives against Gloo.")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--most", type=size_of, default=size_of("256M"), help="bytes: 64K, 256M")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        rank_main(args.most, args.rounds)
        return
    print(machine())
    for ranks in args.ranks:
        launch(ranks, [f"--most={args.most}", f"--rounds={args.rounds}"])


if __name__ == "__main__":
    main()
