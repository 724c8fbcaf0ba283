"""Memory of a NeuronCore: statistics, limits, the allocator's cache."""

from __future__ import annotations

from typing import Any

import torch

from .._C import device as _C
from ._device import DeviceLike, checked_index


def empty_cache() -> None:
    """Gives back the memory that the allocator keeps but no tensor uses."""
    if _C.is_initialized():
        for index in range(_C.device_count()):
            _C.empty_cache(index)


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """Statistics of the allocator.

    Dotted keys as ``"allocated_bytes.all.current"``: ``allocation``, ``segment``, ``active``,
    ``inactive_split``, ``allocated_bytes``, ``reserved_bytes``, ``active_bytes``,
    ``inactive_split_bytes`` or ``requested_bytes``, then ``current``, ``peak``, ``allocated`` or
    ``freed``. The same as nested dictionaries: ``stats["allocated_bytes"]["current"]``. And plain
    counts: ``num_alloc_retries``, ``num_ooms``, ``num_device_alloc``, ``num_device_free`` (of
    segments), ``allocation_requests`` and ``num_tensor_frees`` (of blocks).
    """
    nested = _C.memory_stats(checked_index(device))
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        flat[key] = value
        if isinstance(value, dict):
            for name, number in value.items():
                flat[f"{key}.all.{name}"] = number
    return flat


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """:func:`memory_stats` without the dotted keys."""
    return _C.memory_stats(checked_index(device))


def memory_snapshot(device: DeviceLike = None) -> list[dict[str, Any]]:
    """The allocator's segments and their blocks."""
    return _C.memory_snapshot(checked_index(device))


def memory_allocated(device: DeviceLike = None) -> int:
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device: DeviceLike = None) -> int:
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device: DeviceLike = None) -> int:
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device: DeviceLike = None) -> int:
    return memory_stats(device)["reserved_bytes.all.peak"]


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    _C.reset_peak_memory_stats(checked_index(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    _C.reset_accumulated_memory_stats(checked_index(device))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) bytes of the core's HBM."""
    return _C.memory_info(checked_index(device))


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limits what this process may reserve of the core's HBM; ``fraction`` in (0, 1]."""
    _C.set_memory_fraction(checked_index(device), float(fraction))


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    return _C.get_memory_fraction(checked_index(device))


def caching_allocator_alloc(
    size: int, device: DeviceLike = None, stream: torch.Stream | None = None
) -> int:
    """Address of ``size`` bytes of the core's HBM, for :func:`caching_allocator_delete`.

    The memory belongs to ``stream`` (None: the current one). Raises ValueError for a size below 1,
    torch.OutOfMemoryError.
    """
    if size < 1:
        raise ValueError(f"cannot allocate {size} bytes: expected at least 1")
    index = checked_index(device if stream is None else stream.device)
    if stream is None:
        stream = torch.accelerator.current_stream(torch.device("neuron", index))
    return _C.allocate(index, size, stream.stream_id)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Gives back what :func:`caching_allocator_alloc` returned; ValueError for anything else."""
    _C.free(mem_ptr)


def host_memory_stats() -> dict[str, Any]:
    """Statistics of pinned host memory; the keys are formed as those of :func:`memory_stats`.

    ``active_requests``, ``active_bytes``, ``allocations`` and ``allocated_bytes``, then ``current``
    and so on; ``num_host_alloc`` and ``num_host_free``.
    """
    flat: dict[str, Any] = {}
    for key, value in _C.host_memory_stats().items():
        if not isinstance(value, dict):
            flat[key] = value
            continue
        for name, number in value.items():
            flat[f"{key}.{name}"] = number
    return flat


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """:func:`host_memory_stats` as nested dictionaries."""
    return _C.host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    _C.reset_peak_host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    _C.reset_accumulated_host_memory_stats()


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """A table of :func:`memory_stats`; ``abbreviated`` leaves out the counts."""
    index = checked_index(device)
    stats = _C.memory_stats(index)
    rows = [
        "allocated_bytes",
        "active_bytes",
        "requested_bytes",
        "reserved_bytes",
        "inactive_split_bytes",
    ]
    if not abbreviated:
        rows += ["allocation", "active", "segment", "inactive_split"]
    lines = [
        f"Memory of neuron:{index} ({stats['num_ooms']} OOMs, {stats['num_alloc_retries']} retries)"
    ]
    lines.append(
        f"{'':22}" + "".join(f"{name:>16}" for name in ("current", "peak", "allocated", "freed"))
    )
    for row in rows:
        lines.append(f"{row:22}" + "".join(f"{number:>16,}" for number in stats[row].values()))
    return "\n".join(lines)
