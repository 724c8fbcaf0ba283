"""PyTorch on AWS Trainium: the device ``"neuron"``.

Importing :mod:`torch` loads this package by itself (entry point group ``torch.backends``); with
``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` nothing happens until ``import torch_neuronx``.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .explanation import Report


def _autoload() -> None:
    """Entry point of ``torch.backends``; importing this package did the work. Never raises."""


# After _autoload: when this package is imported first, torch looks it up while being imported here.
import torch  # noqa: E402

__version__ = "0.1.0"

# The extension uses torch's C++ interface, which changes with every release.
_TORCH_VERSION = "2.13.0"

_load_error: Exception | None = None


def _let_threads_finish() -> None:
    """Lets autograd's threads have the interpreter lock a last time.

    The first ``backward()`` starts one thread per device. Each takes the lock once, before it takes
    its name, and the one that worked takes it again to drop what it held. A short script may never
    let go of the lock after that; the interpreter would then end such a thread where C++ frames
    may not be unwound, and the process aborts after all its work is done.
    """
    time.sleep(0.002)
    deadline = time.monotonic() + 1
    while 0 < _autograd_threads() < torch.neuron.device_count() and time.monotonic() < deadline:
        time.sleep(0.001)


def _autograd_threads() -> int:
    names = []
    for path in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            names.append(path.read_text())
    return sum(name.startswith("pt_autograd_") for name in names)


def _load() -> None:
    """Registers the device with torch. Starts nothing: no threads, no memory."""
    if torch.__version__.partition("+")[0] != _TORCH_VERSION:
        raise ImportError(f"it was built for torch {_TORCH_VERSION}, this is {torch.__version__}")
    from . import _C  # noqa: F401 (its initialisation registers the device)

    torch.utils.rename_privateuse1_backend("neuron")
    from . import neuron

    torch._register_device_module("neuron", neuron)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    from .distributed import register

    register()
    from . import _clients, _interchange, _threads
    from .neuron_dynamo_backend import artifact  # noqa: F401 (registers itself with torch)

    _clients.install()
    _interchange.install()
    _threads.install()
    atexit.register(_let_threads_finish)


def _register() -> None:
    """As :func:`_load`; keeps the reason of a failure for the first use of the device."""
    global _load_error
    try:
        _load()
    except Exception as error:  # `import torch` must not fail because of this package
        _load_error = error
        from ._unavailable import install

        install(error)


def _extension() -> ModuleType:
    """The extension; raises RuntimeError with the reason if it could not be loaded."""
    if _load_error is not None:
        from ._unavailable import explain

        raise RuntimeError(explain(_load_error)) from _load_error
    from . import _C

    return _C


def get_executed_ops() -> list[str]:
    """Names of the ATen overloads that ran on the device since the start or the last clear."""
    return _extension().device.executed_ops()


def get_library_ops() -> dict[str, int]:
    """Calls, by ATen overload, that a library computed on the device's memory (docs/ops.md)."""
    return _extension().device.library_ops()


def get_fallback_ops() -> list[str]:
    """Names of the ATen overloads that ran on the CPU because they have no lowering."""
    return list(_extension().device.fallback_ops())


def get_fallback_counts() -> dict[str, dict[str, int]]:
    """Per overload of :func:`get_fallback_ops`: ``calls``, and ``bytes`` of its device tensors."""
    return _extension().device.fallback_ops()


def clear_op_tracking() -> None:
    """Forgets what :func:`get_executed_ops` and :func:`get_fallback_ops` have counted."""
    _extension().device.clear_op_tracking()


def is_neuron_runtime_initialized() -> bool:
    """Whether the device was used in this process."""
    return _extension().device.is_initialized()


def explain(function: Callable[..., Any]) -> Callable[..., Report]:
    """``explain(f)(*args)`` runs ``f`` compiled and reports on its kernels.

    See :func:`torch_neuronx.explanation.explain`.
    """
    _extension()
    from .explanation import explain

    return explain(function)


def __getattr__(name: str) -> Any:
    """Every public name of ``torch.neuron`` is one of ``torch_neuronx`` too."""
    module = sys.modules.get(f"{__name__}.neuron")
    if module is not None and name in module.__all__:
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_register()

from . import metrics, utils  # noqa: E402 (need the names above)
from .nki import nki_op, wrap_nki  # noqa: E402

__all__ = [
    "clear_op_tracking",
    "explain",
    "get_executed_ops",
    "get_fallback_counts",
    "get_fallback_ops",
    "get_library_ops",
    "is_neuron_runtime_initialized",
    "metrics",
    "nki_op",
    "utils",
    "wrap_nki",
]
