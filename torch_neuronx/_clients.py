"""Teaches libraries that know no device called "neuron" what they need to know about it.

- safetensors refuses ``device="neuron"``: it is given "cpu", and the tensors are moved.
- accelerate does not ask the device for its memory, so that ``device_map="auto"`` would put
  everything on the CPU; and it leaves a model where it is if its map is one device by number.
- DTensor and its context parallelism have no rules for the device's fused attention.

A library is changed right after it is imported, or at once if it was imported before; it is never
imported from here.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch


def _is_neuron(device: object) -> bool:
    return isinstance(device, str | torch.device) and torch.device(device).type == "neuron"


class _Slice:
    """A tensor of a file of which parts are read."""

    def __init__(self, inner: Any, device: torch.device) -> None:
        self._inner, self._device = inner, device

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self._inner[index].to(self._device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Reader:
    """``safetensors.safe_open`` whose tensors are on the device."""

    def __init__(self, inner: Any, device: torch.device) -> None:
        self._inner, self._device = inner, device

    def __enter__(self) -> _Reader:
        self._inner.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> Any:
        return self._inner.__exit__(*exc_info)

    def get_tensor(self, name: str) -> torch.Tensor:
        return self._inner.get_tensor(name).to(self._device)

    def get_tensors(self, *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        tensors = self._inner.get_tensors(*args, **kwargs)
        return {name: tensor.to(self._device) for name, tensor in tensors.items()}

    def get_slice(self, name: str) -> _Slice:
        return _Slice(self._inner.get_slice(name), self._device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _patch_safetensors(module: ModuleType) -> None:
    original = module.safe_open

    class safe_open:  # noqa: N801 (safetensors calls it so)
        __doc__ = original.__doc__

        def __new__(
            cls, filename: Any, framework: str = "pt", device: Any = "cpu", **kwargs: Any
        ) -> Any:
            if framework not in ("pt", "torch", "pytorch") or not _is_neuron(device):
                return original(filename, framework, device, **kwargs)
            return _Reader(original(filename, framework, "cpu", **kwargs), torch.device(device))

    module.safe_open = safe_open
    loaded = sys.modules.get("safetensors.torch")
    if loaded is not None:
        loaded.safe_open = safe_open


def _patch_accelerate_memory(module: ModuleType) -> None:
    original = module.get_max_memory

    @functools.wraps(original)
    def get_max_memory(max_memory: dict[Any, Any] | None = None) -> dict[Any, Any]:
        found = original(max_memory)
        if max_memory is not None or torch.cuda.is_available() or not torch.neuron.is_available():
            return found
        cores = {i: torch.neuron.mem_get_info(i)[0] for i in range(torch.neuron.device_count())}
        return {**cores, **found}

    module.get_max_memory = get_max_memory


def _patch_accelerate_dispatch(module: ModuleType) -> None:
    original = module.dispatch_model

    @functools.wraps(original)
    def dispatch_model(model: Any, device_map: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        out = original(model, device_map, *args, **kwargs)
        devices = set(device_map.values())
        index = next(iter(devices)) if len(devices) == 1 else None
        has_hooks = hasattr(out, "_hf_hook")
        if type(index) is int and torch.neuron.is_available() and not has_hooks:
            out.to(torch.device("neuron", index))
        return out

    module.dispatch_model = dispatch_model


def _add_dtensor_attention(module: ModuleType) -> None:
    from .distributed import attention

    attention.install_strategies(module)


def _add_context_parallel(module: ModuleType) -> None:
    from .distributed import attention

    attention.install_context_parallel(module)


_TENSOR = "torch.distributed.tensor"
_PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "safetensors": _patch_safetensors,
    "accelerate.utils.modeling": _patch_accelerate_memory,
    "accelerate.big_modeling": _patch_accelerate_dispatch,
    f"{_TENSOR}._ops._matrix_ops": _add_dtensor_attention,
    f"{_TENSOR}.experimental._context_parallel._attention": _add_context_parallel,
}


def _apply(name: str, module: ModuleType) -> None:
    """Never raises: the library works without, and what it then cannot do it says itself."""
    try:
        _PATCHES[name](module)
    except Exception as error:  # noqa: BLE001
        warnings.warn(
            f"torch_neuronx could not adapt {name} to the device 'neuron': {error}", stacklevel=2
        )


class _Loader(importlib.abc.Loader):
    """The module's own loader; the module is changed once it is loaded."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        _apply(module.__name__, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _PATCHES:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


def install() -> None:
    for name in _PATCHES:
        if name in sys.modules:
            _apply(name, sys.modules[name])
    sys.meta_path.insert(0, _Finder())
