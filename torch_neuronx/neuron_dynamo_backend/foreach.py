"""``_foreach_*`` ops as the ops of their elements, which a graph then fuses as any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

PREFIX = "aten::_foreach_"


def _at_least(x: Tensor, other: Any) -> Tensor:
    return torch.maximum(x, other) if isinstance(other, Tensor) else torch.clamp_min(x, other)


def _at_most(x: Tensor, other: Any) -> Tensor:
    return torch.minimum(x, other) if isinstance(other, Tensor) else torch.clamp_max(x, other)


def _power_sum(x: Tensor, order: Any = 2, dtype: torch.dtype | None = None) -> Tensor:
    return (x if dtype is None else x.to(dtype)).abs().pow(order).sum()


# Of one element. The arguments are those of the list op, in order; the others are torch.<name>.
ELEMENT: dict[str, Callable[..., Any]] = {
    "add": lambda x, other, alpha=1: torch.add(x, other, alpha=alpha),
    "sub": lambda x, other, alpha=1: torch.sub(x, other, alpha=alpha),
    "addcmul": lambda x, a, b, value=1: torch.addcmul(x, a, b, value=value),
    "addcdiv": lambda x, a, b, value=1: torch.addcdiv(x, a, b, value=value),
    "maximum": _at_least,
    "minimum": _at_most,
    "norm": lambda x, order=2, dtype=None: torch.linalg.vector_norm(x, order, dtype=dtype),
    "powsum": _power_sum,
    "copy": lambda x, source, non_blocking=False: torch.ops.aten.copy.default(x, source),
    "clone": lambda x, memory_format=None: torch.clone(
        x, memory_format=memory_format or torch.preserve_format
    ),
    "zero": torch.zeros_like,
}


def _of_elements(op: torch._ops.OpOverload, element: Callable[..., Any]) -> Callable[..., Any]:
    names = [arg.name for arg in op._schema.arguments]

    def decomposition(*args: Any, **kwargs: Any) -> list[Any]:
        rows = [*args, *(kwargs[name] for name in names[len(args) :] if name in kwargs)]
        lists = [row for row in rows if isinstance(row, (list, tuple))]
        return [
            element(*(row[i] if isinstance(row, (list, tuple)) else row for row in rows))
            for i in range(len(lists[0]))
        ]

    return decomposition


def decompositions() -> dict[Any, Callable[..., Any]]:
    """One for each functional overload of a ``_foreach_*`` op.

    But those that take numbers in one tensor: PyTorch reads its values while it traces.
    """
    table: dict[Any, Callable[..., Any]] = {}
    for name in torch._C._dispatch_get_all_op_names():
        base, _, overload = name.removeprefix(PREFIX).partition(".")
        if not name.startswith(PREFIX) or base.endswith("_") or overload.endswith("out"):
            continue
        op = getattr(getattr(torch.ops.aten, f"_foreach_{base}"), overload or "default")
        element = ELEMENT.get(base) or getattr(torch, base, None)
        numbers = {arg.name: str(arg.type) for arg in op._schema.arguments}.get("scalars")
        if element is not None and numbers != "Tensor":
            table[op] = _of_elements(op, element)
    return table
