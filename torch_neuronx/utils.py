"""Small questions that other packages ask under this name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

import torch_neuronx


def is_sync_mode_enabled() -> bool:
    """Whether each op is waited for where it is called (``NEURON_LAUNCH_BLOCKING``)."""
    return torch_neuronx._extension().device.env_bool("NEURON_LAUNCH_BLOCKING")


def is_neff_cache_disabled() -> bool:
    """Whether the cache of executables on disk is off (``TORCH_NEURONX_NEFF_DISABLE_CACHE``)."""
    return torch_neuronx._extension().device.env_bool("TORCH_NEURONX_NEFF_DISABLE_CACHE")


def use_mlir_aten_ops() -> bool:
    """True: ATen ops go through one lowering table to one IR; there is no second path."""
    return True


def is_stablehlo_enabled() -> bool:
    """True: the IR has StableHLO's operations and semantics."""
    return True


def get_platform_target() -> str:
    """What code is made for: "host" on software NeuronCores."""
    return torch_neuronx._extension().device.platform()


def get_logical_neuron_cores() -> str:
    """:func:`get_lnc_setting` as text."""
    return str(get_lnc_setting())


def get_lnc_setting() -> int:
    """Physical NeuronCores that one device joins.

    Raises ValueError if ``NEURON_LOGICAL_NC_CONFIG`` is set to a number that the platform does not
    have: a device must not be another one than what was asked for.
    """
    cores = torch_neuronx._extension().device.device_properties(0)["num_cores"]
    wanted = os.environ.get("NEURON_LOGICAL_NC_CONFIG", "")
    if wanted not in ("", str(cores)):
        raise ValueError(
            f"NEURON_LOGICAL_NC_CONFIG={wanted!r}: platform {get_platform_target()!r} has devices "
            f"of {cores} physical NeuronCore; unset it"
        )
    return cores


def get_worker_multiplier() -> int:
    """Processes per device: 1."""
    return 1


def get_neuron_registered_ops(
    as_sorted: bool = True, keep_variant: bool = True
) -> list[str] | set[str]:
    """ATen ops that the device has a lowering for, as "aten::add.Tensor".

    ``keep_variant`` False: without the overload's name. ``as_sorted`` False: as a set.
    """
    lowered = torch_neuronx._extension().compiler.lowered_ops()
    names = {name if "::" in name else f"aten::{name}" for name in lowered}
    if not keep_variant:
        names = {name.split(".")[0] for name in names}
    return sorted(names) if as_sorted else names


def _move(tree: Any, device: torch.device) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), tree)


def move_pytree_to_cpu(tree: Any) -> Any:
    """The same structure of lists, tuples and dictionaries with every tensor on the CPU."""
    return _move(tree, torch.device("cpu"))


def move_pytree_to_neuron(tree: Any, device: torch.device | str | int | None = None) -> Any:
    """The same structure with every tensor on a device (None: the current one)."""
    from .neuron._device import checked_index

    return _move(tree, torch.device("neuron", checked_index(device)))


@dataclass
class MXFP8:
    """A tensor in microscaling float8: ``data``, one ``scale`` per block, ``dtype`` of the values.

    The device does not compute with it: an op that gets one raises TypeError, as for any object
    that is no tensor.
    """

    data: torch.Tensor
    scale: torch.Tensor
    dtype: torch.dtype


__all__ = [
    "MXFP8",
    "get_lnc_setting",
    "get_logical_neuron_cores",
    "get_neuron_registered_ops",
    "get_platform_target",
    "get_worker_multiplier",
    "is_neff_cache_disabled",
    "is_stablehlo_enabled",
    "is_sync_mode_enabled",
    "move_pytree_to_cpu",
    "move_pytree_to_neuron",
    "use_mlir_aten_ops",
]
