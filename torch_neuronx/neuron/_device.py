"""Devices: which there are, which one is current."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from .._C import device as _C

DeviceLike: TypeAlias = torch.device | str | int | None


def device_index(device: DeviceLike, optional: bool = True) -> int:
    """The index that ``device`` names; the current one for None or a device without index.

    Raises ValueError for a device of another type, TypeError for another kind of argument.
    """
    if device is None:
        if not optional:
            raise ValueError("expected a neuron device with an index, got None")
        return _C.current_device()
    if isinstance(device, bool) or not isinstance(device, (int, str, torch.device)):
        raise TypeError(
            f"expected an int, a str or a torch.device, got {type(device).__name__} {device!r}"
        )
    if isinstance(device, int):
        return device
    parsed = torch.device(device)
    if parsed.type != "neuron":
        raise ValueError(f"expected a neuron device, got {device!r}")
    return _C.current_device() if parsed.index is None else parsed.index


def checked_index(device: DeviceLike) -> int:
    """As :func:`device_index`; raises ValueError if this process has no such NeuronCore."""
    index = device_index(device)
    count = _C.device_count()
    if not 0 <= index < count:
        raise ValueError(
            f"device index {index} is out of range: this process has NeuronCores 0 to {count - 1}"
        )
    return index


# Ranks on this host, each with a NeuronCore of its own; None without a process group.
local_world_size: int | None = None


def device_count() -> int:
    """Number of NeuronCores that this process may use; in a process group, of its local ranks."""
    return _C.device_count() if local_world_size is None else local_world_size


def is_available() -> bool:
    """Whether there is a NeuronCore; never raises."""
    try:
        return _C.device_count() > 0
    except Exception:  # noqa: BLE001 (a question; the first use says what is wrong)
        return False


def is_initialized() -> bool:
    """Whether the device was used in this process."""
    return _C.is_initialized()


def init() -> None:
    """Starts the runtime; the first use of the device does it by itself."""
    _C.init()


def current_device() -> int:
    """Index of the current device of the calling thread."""
    return _C.current_device()


def set_device(device: DeviceLike) -> None:
    """Makes ``device`` current for the calling thread; without an index it changes nothing."""
    if device is None or (
        isinstance(device, (str, torch.device)) and torch.device(device).index is None
    ):
        device_index(device)
        return
    _C.set_device(checked_index(device))


class device:  # noqa: N801 (torch.cuda.device is a class of this name)
    """Context manager that makes a device current; a negative index changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = device_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _C.current_device()
        if self.idx >= 0:
            _C.set_device(checked_index(self.idx))

    def __exit__(self, *exc_info: object) -> None:
        if self.idx >= 0:
            _C.set_device(self.prev_idx)


class device_of(device):  # noqa: N801
    """Context manager that makes the device of a tensor current; nothing for tensors elsewhere."""

    def __init__(self, obj: torch.Tensor) -> None:
        super().__init__(obj.device.index if obj.device.type == "neuron" else -1)


@dataclass(frozen=True)
class NeuronDeviceProperties:
    """What a device is.

    ``total_memory``: bytes of HBM. ``num_cores``: physical NeuronCores that it joins.
    ``instruction_set`` and ``num_threads``: of what executes its work on platform host.
    """

    name: str
    total_memory: int
    instruction_set: str
    num_threads: int
    num_cores: int

    @property
    def multi_processor_count(self) -> int:
        """As torch.cuda's properties call what works in parallel: the threads."""
        return self.num_threads

    @property
    def major(self) -> int:
        """First number of :func:`get_device_capability`."""
        return 0

    @property
    def minor(self) -> int:
        """Second number of :func:`get_device_capability`."""
        return 0


def get_device_properties(device: DeviceLike = None) -> NeuronDeviceProperties:
    return NeuronDeviceProperties(**_C.device_properties(checked_index(device)))


def get_device_name(device: DeviceLike = None) -> str:
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """(0, 0) for a software NeuronCore: it is no generation of the hardware."""
    checked_index(device)
    return (0, 0)


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether one core copies to the other without a detour: True for two different cores."""
    return checked_index(device) != checked_index(peer_device)


def synchronize(device: DeviceLike = None) -> None:
    """Waits for all work of the device; raises the first error that its work met."""
    _C.synchronize(checked_index(device))
