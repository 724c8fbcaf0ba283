"""One contender in a process of its own: what its first call costs, and the memory it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

# Torch's own part of compiling: Dynamo alone, then with AOTAutograd; run on the device.
TORCH_STAGES = {"dynamo": "eager", "aot_eager": "aot_eager"}


def status_bytes(field: str) -> int:
    """Of this process, from /proc/self/status: VmRSS is what it holds, VmHWM the most so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def reset_peak() -> None:
    """Makes VmHWM start again from VmRSS (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


def measure(prepare: Callable[[], Callable[[], Any]]) -> dict[str, float]:
    """Seconds of the first and second call, and MB above the model while compiling and running."""
    call = prepare()
    before = status_bytes("VmRSS")
    reset_peak()
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    compiling = status_bytes("VmHWM") - before
    reset_peak()
    start = time.perf_counter()
    call()
    second = time.perf_counter() - start
    return {
        "first": first,
        "second": second,
        "compiling_mb": compiling / 1e6,
        "running_mb": (status_bytes("VmHWM") - before) / 1e6,
    }


def in_new_process(model: str, contender: str, dtype: str, caches: str) -> dict[str, float]:
    """:func:`measure` there, with the caches of all contenders in a folder."""
    env = os.environ | {
        "TORCH_NEURONX_NEFF_CACHE_DIR": caches + "/neff",
        "TORCHINDUCTOR_CACHE_DIR": caches + "/inductor",
    }
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.compile", "--first-call"]
        + ["--models", model, "--contenders", contender, "--dtypes", dtype]
        + ["--threads", str(torch.get_num_threads())],
        env=env,
        capture_output=True,
        text=True,
    )
    if child.returncode != 0:
        raise RuntimeError(f"{model}, {contender}:\n{child.stderr}")
    return json.loads(child.stdout.splitlines()[-1])


def _markdown(names: list[str], columns: list[str]) -> str:
    header = "| model | " + " | ".join(f"{n} {c}" for n in names for c in columns) + " |"
    return header + "\n" + "|---" * (1 + len(names) * len(columns)) + "|"


def compile_table(models: list[str], dtypes: list[str]) -> None:
    """Prints first minus second call, with empty caches and with those of the process before."""
    names = [*TORCH_STAGES, "neuron", "inductor"]
    print(_markdown(names, ["cold, s", "warm, s"]))
    for dtype in dtypes:
        for model in models:
            cells = [f"{model}, {dtype}"]
            for name in names:
                with tempfile.TemporaryDirectory() as caches:
                    for _ in range(2):
                        result = in_new_process(model, name, dtype, caches)
                        cells.append(f"{result['first'] - result['second']:.2f}")
            print("| " + " | ".join(cells) + " |", flush=True)


def memory_table(models: list[str], dtypes: list[str], contenders: list[str]) -> None:
    """Prints MB of the process above its model and inputs: with the compile, then of a run."""
    print(_markdown(contenders, ["compiling, MB", "running, MB"]))
    for dtype in dtypes:
        for model in models:
            cells = [f"{model}, {dtype}"]
            for name in contenders:
                with tempfile.TemporaryDirectory() as caches:
                    try:
                        result = in_new_process(model, name, dtype, caches)
                    except RuntimeError as error:  # a peer that cannot is left out, visibly
                        print(str(error).splitlines()[-1], file=sys.stderr)
                        cells += ["fails", "fails"]
                        continue
                cells += [f"{result['compiling_mb']:.0f}", f"{result['running_mb']:.0f}"]
            print("| " + " | ".join(cells) + " |", flush=True)
