"""``torch.neuron``: devices, streams, memory and random numbers, as ``torch.cuda`` has them."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import OutOfMemoryError

from .._C import device as _runtime
from . import memory, random
from ._device import (
    NeuronDeviceProperties,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from ._stream import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    query,
    record_event,
    set_stream,
    stream,
    wait_event,
    wait_stream,
)
from .memory import (
    caching_allocator_alloc,
    caching_allocator_delete,
    empty_cache,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)


def _is_in_bad_fork() -> bool:
    return _runtime.is_in_bad_fork()


@functools.cache
def _default_generators() -> tuple[torch.Generator, ...]:
    return tuple(_runtime.default_generator(i) for i in range(_runtime.device_count()))


def _sleep(cycles: int) -> None:
    """Keeps the current stream busy for ``cycles`` nanoseconds."""
    _runtime.sleep(cycles)


def _lazy_init() -> None:
    """Called by torch before it makes a tensor of the device. Raises in a forked child."""
    _runtime.init()


def __getattr__(name: str) -> Any:
    if name == "_initialized":  # torch's activation checkpointing reads it
        return is_initialized()
    if name == "amp":
        import importlib

        return importlib.import_module(".amp", __name__)
    if name == "default_generators":
        return _default_generators()
    raise AttributeError(f"module 'torch.neuron' has no attribute {name!r}")


def get_dynamo_metrics() -> list[dict[str, Any]]:
    """What each graph cost to compile; see :mod:`torch_neuronx.neuron_dynamo_backend.records`."""
    from ..neuron_dynamo_backend import records

    return records.get()


def reset_dynamo_metrics() -> None:
    """Forgets what :func:`get_dynamo_metrics` has."""
    from ..neuron_dynamo_backend import records

    records.reset()


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Dtypes that ``torch.autocast("neuron")`` accepts."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: every NeuronCore computes with bfloat16."""
    return True


__all__ = [
    "Event",
    "NeuronDeviceProperties",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_dynamo_metrics",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "query",
    "random",
    "record_event",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_dynamo_metrics",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    "wait_event",
    "wait_stream",
]
