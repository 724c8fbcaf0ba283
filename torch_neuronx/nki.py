"""Custom ops around NKI kernels: ``nki_op`` and ``wrap_nki``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

import torch_neuronx


def nki_op(
    name: str, fn: Callable[..., Any] | None = None, *, mutates_args: str | Iterable[str] = ()
) -> Any:
    """Makes a function a custom op: ``@nki_op("mine::scale")``, or ``nki_op("mine::scale", fn)``.

    The function also says, called with fake tensors, what shapes and dtypes the op returns, so it
    must be of PyTorch ops (and of kernels that :func:`wrap_nki` wrapped) only. Its annotations
    make the schema. Returns the ``CustomOpDef``: ``register_autograd`` and so on.
    """

    def make(function: Callable[..., Any]) -> Any:
        op = torch.library.custom_op(name, function, mutates_args=mutates_args)
        op.register_fake(function)
        return op

    return make if fn is None else make(fn)


class _Wrapped:
    """What :func:`wrap_nki` returns."""

    def __init__(self, kernel: Callable[..., Any], options: dict[str, Any]) -> None:
        self.kernel, self.options = kernel, options

    def __getitem__(self, grid: Any) -> _Wrapped:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        platform = torch_neuronx.utils.get_platform_target()
        kernel = getattr(self.kernel, "__name__", repr(self.kernel))
        raise NotImplementedError(
            f"platform {platform!r} cannot run the NKI kernel {kernel}: NKI compiles for Trainium "
            "only. Write the op with PyTorch ops here; torch.compile fuses them into kernels."
        )


def wrap_nki(nki_jit_kernel: Callable[..., Any], **kwargs: Any) -> _Wrapped:
    """A kernel that is called with tensors: ``wrap_nki(kernel)[grid](x, y)``.

    The call raises NotImplementedError on platforms that have no NKI compiler, as "host".
    """
    return _Wrapped(nki_jit_kernel, kwargs)


__all__ = ["nki_op", "wrap_nki"]
