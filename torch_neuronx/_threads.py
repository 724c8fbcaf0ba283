"""``torch.set_num_threads`` holds for the device's kernels too."""

from __future__ import annotations

import functools

import torch

from . import _C


def install() -> None:
    """Idempotent."""
    of_torch = torch.set_num_threads
    if hasattr(of_torch, "_of_torch"):
        return

    @functools.wraps(of_torch)
    def set_num_threads(num: int) -> None:
        of_torch(num)  # raises for what is no positive number
        _C.kernels.set_num_threads(num)

    set_num_threads._of_torch = of_torch  # type: ignore[attr-defined]
    torch.set_num_threads = set_num_threads
