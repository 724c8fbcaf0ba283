"""Alternating measurement of contenders, and a description of the machine."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass
class Result:
    """Seconds per call: the least of all rounds, and the median."""

    least: float
    median: float


def alternate(
    contenders: dict[str, Callable[[], object]], rounds: int, calls: int = 1
) -> dict[str, Result]:
    """Runs each contender ``calls`` times in turn, ``rounds`` times, after one round to warm up.

    A contender must wait for its own work. The minimum tells what the code costs, the median
    what a busy machine makes of it.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for round_number in range(rounds + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            for _ in range(calls):
                run()
            elapsed = (time.perf_counter() - start) / calls
            if round_number > 0:
                times[name].append(elapsed)
    return {name: Result(min(t), statistics.median(t)) for name, t in times.items()}


def machine() -> str:
    cpu = platform.processor() or "unknown CPU"
    try:
        with open("/proc/cpuinfo") as info:
            cpu = next(
                line.split(":", 1)[1].strip() for line in info if line.startswith("model name")
            )
    except (OSError, StopIteration):
        pass
    isa = torch.neuron.get_device_properties(0).instruction_set
    cpus = len(os.sched_getaffinity(0))
    threads = torch.get_num_threads()
    return f"{cpu}, {cpus} CPUs, kernels {isa}, torch {torch.__version__} with {threads} threads"


def table(
    title: str, rows: list[tuple[str, dict[str, Result]]], unit: float, unit_name: str
) -> str:
    """Markdown: minimum (median) per contender; ratios of the first to the others, by minima."""
    names = list(rows[0][1])
    lines = [f"| {title} | " + " | ".join(f"{n}, {unit_name}" for n in names)]
    lines[0] += " | " + " | ".join(f"{names[0]} / {n}" for n in names[1:]) + " |"
    lines.append("|---" * (2 * len(names)) + "|")
    for label, results in rows:
        cells = [f"{results[n].least / unit:.2f} ({results[n].median / unit:.2f})" for n in names]
        ratios = [f"{results[names[0]].least / results[n].least:.2f}" for n in names[1:]]
        lines.append("| " + " | ".join([label, *cells, *ratios]) + " |")
    return "\n".join(lines)
