"""The backend ``"neuron"`` of :mod:`torch.distributed`: one NeuronCore for each rank of a host."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist

from .._C import device as _runtime
from .._C import distributed as _C
from ..neuron import _device
from . import monitored


def _own_core(rank: int, size: int) -> None:
    """Makes the local rank the process's device; done by the first group only."""
    if _device.local_world_size is not None:
        return
    # Without a launcher's variables all ranks are on this host: the backend spans no others.
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    cores = _runtime.device_count()
    if local_size > cores:
        raise RuntimeError(
            f"{local_size} ranks on this host, but a process sees only {cores} NeuronCores: set "
            f"NEURON_RT_NUM_CORES={local_size}"
        )
    _runtime.set_default_device(local_rank)
    _device.local_world_size = local_size


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> object:
    """The creator that torch.distributed calls for every group."""
    _own_core(rank, size)
    return _C.create_process_group(store, rank, size, timeout)


def register() -> None:
    """Makes ``init_process_group("neuron")`` known; nothing if torch has no torch.distributed."""
    if dist.is_available() and "neuron" not in dist.Backend.backend_list:
        dist.Backend.register_backend("neuron", _create, devices=["neuron"])
        monitored.install()
