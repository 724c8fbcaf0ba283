"""Runs code as the ranks of a process group, each in a process of its own."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROLOGUE = """
import os, sys, torch, torch.distributed as dist
from datetime import timedelta
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("neuron", init_method="file://" + os.environ["STORE"], rank=rank,
                        world_size=size, timeout=timedelta(seconds=float(os.environ["SECONDS"])))
"""
EPILOGUE = "\ndist.destroy_process_group()\n"


def rank_environment(rank: int, size: int, store: Path, **more: str) -> dict[str, str]:
    own = {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "STORE": str(store),
        # Without it each rank's CPU ops would take all cores.
        "OMP_NUM_THREADS": "1",
    }
    return {**os.environ, **own, **more}


@pytest.fixture
def run_ranks(tmp_path: Path) -> Callable[..., list[subprocess.CompletedProcess[str]]]:
    """Runs code with a group; returns the finished processes by rank. ``ok`` wants status 0.

    For checks that end or hurt their processes; others share processes: ``ranks``.
    """

    def run(
        code: str,
        size: int = 2,
        seconds: float = 60,
        ok: bool = True,
        timeout: float = 100,
        env: dict[str, str] | None = None,
    ) -> list[subprocess.CompletedProcess[str]]:
        script = PROLOGUE + textwrap.dedent(code) + EPILOGUE
        processes = []
        for rank in range(size):
            more = {"SECONDS": str(seconds)} | (env or {})
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", script],
                    env=rank_environment(rank, size, tmp_path / "store", **more),
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        done = []
        try:
            for process in processes:
                out, err = process.communicate(timeout=timeout)
                done.append(subprocess.CompletedProcess([], process.returncode, out, err))
        finally:
            for process in processes:
                process.kill()
        if ok:
            for rank, result in enumerate(done):
                assert result.returncode == 0, f"rank {rank}: {result.stderr}"
        return done

    return run


class Ranks:
    """Processes of one group that run code on request (worker.py)."""

    def __init__(self, size: int, directory: Path) -> None:
        self.size = size
        self.processes: list[subprocess.Popen[str]] = []
        self.answers: list[queue.Queue[str]] = []
        self.logs = [directory / f"rank{rank}.txt" for rank in range(size)]
        for rank in range(size):
            read, write = os.pipe()
            with self.logs[rank].open("w") as log:
                process = subprocess.Popen(
                    [sys.executable, str(ROOT / "tests/distributed/worker.py"), str(write)],
                    env=rank_environment(rank, size, directory / "store"),
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=[write],
                    text=True,
                )
            os.close(write)
            answers: queue.Queue[str] = queue.Queue()
            threading.Thread(target=self._read, args=(read, answers), daemon=True).start()
            self.processes.append(process)
            self.answers.append(answers)

    @staticmethod
    def _read(pipe: int, answers: queue.Queue[str]) -> None:
        with os.fdopen(pipe) as lines:
            for line in lines:
                answers.put(line)
        answers.put("")  # the process has ended

    def run(self, code: str, timeout: float) -> list[str]:
        """What each rank printed; fails with the traceback of the first rank that has one."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps(textwrap.dedent(code)) + "\n")
            process.stdin.flush()
        out = []
        errors = []
        for rank, answers in enumerate(self.answers):
            try:
                line = answers.get(timeout=timeout)
            except queue.Empty:
                line = ""
            if not line:
                self.kill()
                state = self.logs[rank].read_text()
                pytest.fail(f"rank {rank} gave no answer in {timeout} s. {''.join(errors)}{state}")
            answer = json.loads(line)
            out.append(answer["stdout"])
            if answer["error"] is not None:
                errors.append(f"rank {rank}: {answer['error']}")
        if errors:
            self.kill()
            pytest.fail("\n".join(errors))
        return out

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
        self.close()

    def close(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()

    def alive(self) -> bool:
        return all(process.poll() is None for process in self.processes)


@pytest.fixture(scope="session")
def rank_pools() -> Iterator[dict[int, Ranks]]:
    pools: dict[int, Ranks] = {}
    yield pools
    for pool in pools.values():
        if pool.alive():
            pool.close()


@pytest.fixture
def ranks(
    rank_pools: dict[int, Ranks], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[str]]:
    """Runs code on ranks that live for the whole session; returns what each printed."""

    def run(code: str, size: int = 2, timeout: float = 90) -> list[str]:
        if size not in rank_pools or not rank_pools[size].alive():
            rank_pools[size] = Ranks(size, tmp_path_factory.mktemp("ranks"))
        return rank_pools[size].run(code, timeout)

    return run
