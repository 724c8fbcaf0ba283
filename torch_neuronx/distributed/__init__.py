"""The backend ``"neuron"`` of :mod:`torch.distributed`: one NeuronCore for each rank of a host."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist

from .._C import device as _runtime
from .._C import distributed as _C
from ..neuron import _device
from . import monitored


def _own_core(ranks: list[int], rank: int) -> None:
    """Makes the local rank the process's device; done by the first group only. ``ranks``: the
    host's."""
    if _device.local_world_size is not None:
        return
    # Without a launcher's variables the group's ranks on this host are all there are.
    local_rank = int(os.environ.get("LOCAL_RANK", ranks.index(rank)))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", len(ranks)))
    cores = _runtime.device_count()
    if local_size > cores:
        raise RuntimeError(
            f"{local_size} ranks on this host, but a process sees only {cores} NeuronCores: set "
            f"NEURON_RT_NUM_CORES={local_size}"
        )
    _runtime.set_default_device(local_rank)
    _device.local_world_size = local_size


def _leaders(
    store: dist.Store, hosts: list[list[int]], rank: int, timeout: timedelta
) -> object | None:
    """The group of the first ranks of several hosts, if ``rank`` is one of them."""
    firsts = [ranks[0] for ranks in hosts]
    if len(hosts) == 1 or rank not in firsts:
        return None
    if not dist.is_gloo_available():
        raise RuntimeError(
            f"a group of {len(hosts)} hosts needs the backend 'gloo', which this torch lacks"
        )
    store = dist.PrefixStore("neuron/leaders", store)
    return dist.ProcessGroupGloo(store, firsts.index(rank), len(hosts), timeout)


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> object:
    """The creator that torch.distributed calls for every group."""
    hosts = _C.find_hosts(store, rank, size, timeout)
    _own_core(next(ranks for ranks in hosts if rank in ranks), rank)
    leaders = _leaders(store, hosts, rank, timeout)
    return _C.create_process_group(store, rank, size, hosts, leaders, timeout)


def register() -> None:
    """Makes ``init_process_group("neuron")`` known; nothing if torch has no torch.distributed."""
    if dist.is_available() and "neuron" not in dist.Backend.backend_list:
        dist.Backend.register_backend("neuron", _create, devices=["neuron"])
        monitored.install()
