"""PyTorch on AWS Trainium: the device ``"neuron"``.

Importing :mod:`torch` loads this package by itself (entry point group ``torch.backends``); with
``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` nothing happens until ``import torch_neuronx``.
"""

from __future__ import annotations

import torch

__version__ = "0.1.0"

_load_error: BaseException | None = None


def _register() -> None:
    """Makes ``torch.neuron`` and the device exist; keeps the reason when the extension cannot load."""
    global _load_error
    try:
        from . import _C  # noqa: F401 (registers the device)
    except BaseException as error:  # noqa: BLE001 (import torch must not fail because of this package)
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        _load_error = error
        from ._unavailable import install

        install(error)
        return
    torch.utils.rename_privateuse1_backend("neuron")
    from . import neuron

    torch._register_device_module("neuron", neuron)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )


def _autoload() -> None:
    """Entry point of ``torch.backends``; the import of this package did the work. Never raises."""


def get_executed_ops() -> list[str]:
    """Names of the ATen overloads that ran on the device since the start or the last clear."""
    from . import _C

    return _C.device.executed_ops()


def get_fallback_ops() -> list[str]:
    """Names of the ATen overloads that ran on the CPU because they have no lowering."""
    from . import _C

    return list(_C.device.fallback_ops())


def get_fallback_counts() -> dict[str, dict[str, int]]:
    """Per overload of :func:`get_fallback_ops`: ``calls``, and ``bytes`` of the tensors that were moved."""
    from . import _C

    return _C.device.fallback_ops()


def clear_op_tracking() -> None:
    """Forgets what :func:`get_executed_ops` and :func:`get_fallback_ops` have counted."""
    from . import _C

    _C.device.clear_op_tracking()


_register()

from . import metrics  # noqa: E402

__all__ = [
    "clear_op_tracking",
    "get_executed_ops",
    "get_fallback_counts",
    "get_fallback_ops",
    "metrics",
]
