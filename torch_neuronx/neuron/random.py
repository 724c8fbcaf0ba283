"""Random numbers of the device: Philox generators with a seed and an offset."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .._C import device as _C
from ._device import DeviceLike, checked_index


def _generator(device: DeviceLike) -> torch.Generator:
    return _C.default_generator(checked_index(device))


def get_rng_state(device: DeviceLike = "neuron") -> torch.Tensor:
    """uint8[16]: seed and offset."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(index) for index in range(_C.device_count())]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "neuron") -> None:
    _generator(device).set_state(new_state.cpu())


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds every device's generator; ``torch.manual_seed`` calls it."""
    for index in range(_C.device_count()):
        _generator(index).manual_seed(int(seed))


def seed() -> int:
    """Seeds the current device's generator at random; returns the seed."""
    return _generator(None).seed()


def seed_all() -> None:
    """Seeds every device's generator at random."""
    for index in range(_C.device_count()):
        _generator(index).seed()


def initial_seed() -> int:
    return _generator(None).initial_seed()
