"""Counters of compilations and of the cache of executables. Always counting.

:func:`get_compilation_metrics` counts since the start of the process; the counters and metrics with
names count since the start or the last ``clear_*``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch_neuronx

Counts = dict[str, float]

# The cache in memory is asked first, then the one on disk, then the compiler.
_COUNTERS: dict[str, Callable[[Counts], float]] = {
    "CompilationCache.InMemoryHits": lambda c: c["memory_hits"],
    "CompilationCache.InMemoryMisses": lambda c: c["disk_hits"] + c["compilations"],
    "CompilationCache.PersistentHits": lambda c: c["disk_hits"],
    "CompilationCache.PersistentMisses": lambda c: c["compilations"],
    "CompilationCache.TotalCompilations": lambda c: c["compilations"],
}
_COMPILATION_TIME = "CompilationCache.CompilationTime"

_cleared_counters: Counts = {}
_cleared_metrics: Counts = {}


def get_compilation_metrics() -> Counts:
    """What compiling has cost this process.

    ``compilations``: kernels generated; ``memory_hits``: found in this process; ``disk_hits``:
    found in the on-disk cache; ``compile_seconds``: time spent generating, summed over threads;
    ``disk_writes``; ``disk_rejected``: damaged or foreign cache files, compiled again.
    """
    return torch_neuronx._extension().device.compilation_metrics()


def _since(cleared: Counts) -> Counts:
    return {name: value - cleared.get(name, 0) for name, value in get_compilation_metrics().items()}


def is_enabled() -> bool:
    """True: counting costs nothing that could be saved."""
    return True


def get_counter_names() -> list[str]:
    """Names of the counters that are not 0."""
    counts = _since(_cleared_counters)
    return [name for name, value in _COUNTERS.items() if value(counts)]


def get_counter_value(name: str) -> int | None:
    """The counter's value; None for a name that is unknown or still 0."""
    value = _COUNTERS.get(name)
    return (int(value(_since(_cleared_counters))) or None) if value else None


def get_metric_names() -> list[str]:
    """Names of the metrics that have samples."""
    return [_COMPILATION_TIME] if _since(_cleared_metrics)["compilations"] else []


def get_metric_data(name: str) -> dict[str, Any] | None:
    """``accumulator`` (sum, seconds), ``total_samples`` and ``repr``; None for an unknown name."""
    if name not in get_metric_names():
        return None
    counts = _since(_cleared_metrics)
    seconds, samples = counts["compile_seconds"], int(counts["compilations"])
    return {"accumulator": seconds, "total_samples": samples, "repr": f"{seconds:.3f} s"}


def report_filtered(
    counter_names: Iterable[str] | None = None, metric_names: Iterable[str] | None = None
) -> str:
    """As :func:`report`, of the named counters and metrics only (None: of all)."""
    lines = []
    for name in get_metric_names() if metric_names is None else metric_names:
        data = get_metric_data(name)
        if data is not None:
            lines += [
                f"Metric: {name}",
                f"  TotalSamples: {data['total_samples']}",
                f"  Accumulator: {data['repr']}",
            ]
    for name in get_counter_names() if counter_names is None else counter_names:
        counter = get_counter_value(name)
        if counter is not None:
            lines += [f"Counter: {name}", f"  Value: {counter}"]
    return "\n".join(lines)


def report() -> str:
    """Every metric and counter that is not 0, as text."""
    return report_filtered()


def clear_counters() -> None:
    _cleared_counters.update(get_compilation_metrics())


def clear_metrics() -> None:
    _cleared_metrics.update(get_compilation_metrics())


def clear_all() -> None:
    clear_counters()
    clear_metrics()
