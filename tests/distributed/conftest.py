"""Runs code as the ranks of a process group, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
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


@pytest.fixture
def run_ranks(tmp_path: Path) -> Callable[..., list[subprocess.CompletedProcess[str]]]:
    """Runs code with a group; returns the finished processes by rank. ``ok`` wants status 0."""

    def run(
        code: str, size: int = 2, seconds: float = 60, ok: bool = True, timeout: float = 100
    ) -> list[subprocess.CompletedProcess[str]]:
        script = PROLOGUE + textwrap.dedent(code) + EPILOGUE
        processes = []
        for rank in range(size):
            env = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(size),
                "STORE": str(tmp_path / "store"),
                "SECONDS": str(seconds),
            }
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", script],
                    env=env,
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
