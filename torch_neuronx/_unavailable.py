"""What ``torch.neuron`` is when the extension cannot be loaded: every use says why."""

from __future__ import annotations

import types
import warnings
from typing import Any, NoReturn

import torch


def explain(reason: BaseException) -> str:
    return (
        f"the device 'neuron' cannot be used, because torch_neuronx could not be loaded: "
        f"{type(reason).__name__}: {reason}. Reinstall torch-neuronx for torch "
        f"{torch.__version__}, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 to do without it."
    )


class _Unavailable(types.ModuleType):
    """Answers the questions that torch asks of any device; raises for whatever else is called."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__("torch.neuron")
        self._reason = reason

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

    def _lazy_init(self) -> NoReturn:
        """Called by torch before it makes or moves a tensor of the device."""
        raise RuntimeError(explain(self._reason)) from self._reason

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module 'torch.neuron' has no attribute {name!r}")

        def unavailable(*args: object, **kwargs: object) -> NoReturn:
            self._lazy_init()

        return unavailable


def install(reason: BaseException) -> None:
    """Makes ``torch.neuron`` explain ``reason``. Never raises."""
    try:
        torch.utils.rename_privateuse1_backend("neuron")
        if not hasattr(torch, "neuron"):
            torch._register_device_module("neuron", _Unavailable(reason))
    except Exception as error:  # another package has taken torch's place for such devices
        warnings.warn(f"{explain(reason)} ({error})", stacklevel=2)
