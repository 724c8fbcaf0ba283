"""Counters of compilations and of the cache of executables. Always counting."""

from __future__ import annotations


def get_compilation_metrics() -> dict[str, float]:
    """What compiling has cost this process.

    ``compilations``: kernels generated; ``memory_hits``: found in this process; ``disk_hits``: found in the
    on-disk cache; ``compile_seconds``: time spent generating (summed over threads); ``disk_writes``;
    ``disk_rejected``: damaged or foreign cache files, which were compiled again.
    """
    from . import _C

    return _C.device.compilation_metrics()
