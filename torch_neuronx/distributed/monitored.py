"""``torch.distributed.monitored_barrier`` for groups of the backend ``"neuron"``."""

from __future__ import annotations

import functools
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d


def install() -> None:
    """torch's function asks for the name "gloo"; groups of ours go to their backend before that."""
    torchs = distributed_c10d.monitored_barrier

    @functools.wraps(torchs)
    def monitored_barrier(
        group: dist.ProcessGroup | None = None,
        timeout: timedelta | None = None,
        wait_all_ranks: bool = False,
    ) -> None:
        if distributed_c10d._rank_not_in_group(group) or dist.get_backend(group) != "neuron":
            return torchs(group, timeout, wait_all_ranks)
        group = group or distributed_c10d._get_default_group()
        backend = group._get_backend(torch.device("neuron"))
        if timeout is None:  # the group's own
            return backend.monitored_barrier(wait_all_ranks=wait_all_ranks)
        return backend.monitored_barrier(timeout, wait_all_ranks)

    distributed_c10d.monitored_barrier = monitored_barrier
    dist.monitored_barrier = monitored_barrier
