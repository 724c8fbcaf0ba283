"""Counters and metrics of compilations and of the cache of executables.

:func:`get_compilation_metrics` always counts, since the start of the process; the counters and
metrics with names count since the start or the last ``clear_*``, except while they are switched off
(:func:`set_enabled`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch_neuronx

Counts = dict[str, float]
# Samples ever, their sum, and (seconds since the epoch, value) of the last 1024.
Samples = tuple[int, float, list[tuple[float, float]]]

# The cache in memory is asked first, then the one on disk, then the compiler.
_COUNTERS: dict[str, Callable[[Counts], float]] = {
    "CompilationCache.InMemoryHits": lambda c: c["memory_hits"],
    "CompilationCache.InMemoryMisses": lambda c: c["disk_hits"] + c["compilations"],
    "CompilationCache.PersistentHits": lambda c: c["disk_hits"],
    "CompilationCache.PersistentMisses": lambda c: c["compilations"],
    "CompilationCache.Evictions": lambda c: c["disk_evicted"],
    "CompilationCache.TotalCompilations": lambda c: c["compilations"],
}
# Name: (samples of the extension, what a value is shown as).
_METRICS: dict[str, tuple[str, Callable[[float], str]]] = {
    "CompilationCache.CompilationTime": ("compile_times", lambda value: f"{value:.3f} s"),
    "CompilationCache.NeffSize": ("neff_sizes", lambda value: f"{value:.0f} B"),
    "CompilationCache.MemoryUsage": ("code_bytes", lambda value: f"{value:.0f} B"),
}


class _Since:
    """What was counted when it was last cleared, less what was counted while switched off."""

    def __init__(self) -> None:
        self.counters: Counts = {}
        self.samples: dict[str, tuple[int, float]] = {}


_since = _Since()
# What was counted when counting was switched off; None while it is on.
_off: tuple[Counts, dict[str, Samples]] | None = None


def get_compilation_metrics() -> Counts:
    """What compiling has cost this process.

    ``compilations``: kernels generated; ``memory_hits``: found in this process; ``disk_hits``:
    found in the on-disk cache; ``compile_seconds``: time spent generating, summed over threads;
    ``disk_writes``; ``disk_rejected``: damaged or foreign cache files, compiled again.
    """
    return torch_neuronx._extension().device.compilation_metrics()


def _all_samples() -> dict[str, Samples]:
    return torch_neuronx._extension().device.compilation_samples()


def _now() -> tuple[Counts, dict[str, Samples]]:
    return _off if _off is not None else (get_compilation_metrics(), _all_samples())


def _counts() -> Counts:
    return {name: value - _since.counters.get(name, 0) for name, value in _now()[0].items()}


def is_enabled() -> bool:
    """Whether the named counters and metrics count. True unless :func:`set_enabled` says no."""
    return _off is None


def set_enabled(enabled: bool) -> None:
    """Switches the named counters and metrics off or on; what happens while off is not counted."""
    global _off
    if not enabled:
        _off = _now()
    elif _off is not None:
        counts, samples = _off
        _off = None
        now_counts, now_samples = _now()
        for name, value in now_counts.items():
            missed = value - counts[name]
            _since.counters[name] = _since.counters.get(name, 0) + missed
        for name, (total, value, _) in now_samples.items():
            before = _since.samples.get(name, (0, 0.0))
            _since.samples[name] = (
                before[0] + total - samples[name][0],
                before[1] + value - samples[name][1],
            )


def get_counter_names() -> list[str]:
    """Names of the counters that are not 0."""
    counts = _counts()
    return [name for name, value in _COUNTERS.items() if value(counts)]


def get_counter_value(name: str) -> int | None:
    """The counter's value; None for a name that is unknown or still 0."""
    value = _COUNTERS.get(name)
    return (int(value(_counts())) or None) if value else None


def get_metric_names() -> list[str]:
    """Names of the metrics that have samples."""
    return [name for name in _METRICS if get_metric_data(name) is not None]


def get_metric_data(name: str) -> dict[str, Any] | None:
    """What a metric has; None for a name that is unknown or has no samples.

    ``accumulator``: the sum, in seconds or bytes; ``total_samples``; ``samples``: (seconds since
    the epoch, value) of the last 1024 at most; ``repr``: the sum as text.
    ``CompilationCache.CompilationTime`` and ``.NeffSize`` have a sample per kernel generated,
    ``.MemoryUsage`` has the machine code held in memory after each kernel.
    """
    if name not in _METRICS:
        return None
    key, show = _METRICS[name]
    total, value, last = _now()[1][key]
    total_before, value_before = _since.samples.get(key, (0, 0.0))
    count = total - total_before
    if count == 0:
        return None
    accumulator = value - value_before
    return {
        "accumulator": accumulator,
        "total_samples": count,
        "samples": last[-count:],
        "repr": show(accumulator),
    }


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
    _since.counters = dict(_now()[0])


def clear_metrics() -> None:
    _since.samples = {name: (total, value) for name, (total, value, _) in _now()[1].items()}


def clear_all() -> None:
    clear_counters()
    clear_metrics()
