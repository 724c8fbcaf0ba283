"""``torch.neuron.amp``: ``torch.amp`` with the device filled in."""

from __future__ import annotations

import functools
from typing import Any

import torch

custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="neuron")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="neuron")


class autocast(torch.amp.autocast):  # noqa: N801 (torch.cuda.amp has a class of this name)
    """``torch.autocast("neuron")``; bfloat16 unless told otherwise."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.bfloat16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__("neuron", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("neuron")``."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("neuron", **kwargs)


__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
