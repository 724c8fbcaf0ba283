"""What ``torch.neuron`` is when the extension cannot be loaded: every use says why."""

from __future__ import annotations

import types
from typing import Any

import torch


class _Unavailable(types.ModuleType):
    def __init__(self, reason: BaseException) -> None:
        super().__init__("torch.neuron")
        self.__dict__["_reason"] = reason

    def is_available(self) -> bool:
        return False

    def device_count(self) -> int:
        return 0

    def is_initialized(self) -> bool:
        return False

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """Nothing to seed: called by every ``torch.manual_seed``."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(
            f"torch.neuron.{name}: the extension of torch_neuronx could not be loaded: "
            f"{type(self._reason).__name__}: {self._reason}. Reinstall torch-neuronx for torch {torch.__version__}, "
            f"or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 to do without it."
        ) from self._reason


def install(reason: BaseException) -> None:
    torch.utils.rename_privateuse1_backend("neuron")
    torch._register_device_module("neuron", _Unavailable(reason))
