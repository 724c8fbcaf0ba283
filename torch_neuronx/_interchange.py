"""Tensors of the device for other libraries, through DLPack.

DLPack has no type for the device, only one for "another device". A library that can use that gets
the memory itself; one that asks for the CPU (``numpy.from_dlpack(x, device="cpu")``) gets a copy.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils.dlpack import DLDeviceType


def install() -> None:
    """Teaches ``torch.Tensor`` its DLPack device: torch knows only its own names of devices."""
    inner_device = torch.Tensor.__dlpack_device__
    inner_export = torch.Tensor.__dlpack__

    @functools.wraps(inner_device)
    def __dlpack_device__(self: torch.Tensor) -> Any:
        if self.device.type == "neuron":
            return DLDeviceType.kDLExtDev, self.device.index
        return inner_device(self)

    @functools.wraps(inner_export)
    def __dlpack__(self: torch.Tensor, **kwargs: Any) -> Any:
        target = kwargs.get("dl_device")
        if self.device.type != "neuron" or target in (None, self.__dlpack_device__()):
            return inner_export(self, **kwargs)
        if target[0] != DLDeviceType.kDLCPU:
            raise BufferError(
                f"a neuron tensor cannot be exported to DLPack device {tuple(target)}: "
                "only to its own device, or copied to the CPU"
            )
        if kwargs.get("copy") is False:
            raise BufferError("a neuron tensor cannot be exported to the CPU without a copy")
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        return inner_export(self.cpu(), max_version=kwargs.get("max_version"))

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
    torch.Tensor.__dlpack__ = __dlpack__  # type: ignore[method-assign]
