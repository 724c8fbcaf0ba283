"""The backend that Dynamo calls: AOTAutograd, then one executable per graph."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from .names import get_model_name, set_model_name

OPTIONS = {"model_name": "label of the graphs, as set_model_name"}


@functools.cache
def _warn_mode(mode: str) -> None:
    warnings.warn(f'mode={mode!r} has no meaning for backend "neuron" and is ignored', stacklevel=4)


def _check_options(mode: str | None, options: dict[str, Any] | None) -> None:
    if mode not in (None, "default"):
        _warn_mode(mode)
    for key in options or {}:
        if key not in OPTIONS:
            known = ", ".join(f"{name} ({meaning})" for name, meaning in OPTIONS.items())
            raise ValueError(f'unknown option {key!r} of backend "neuron"; known options: {known}')
    if options and "model_name" in options:
        set_model_name(options["model_name"])


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions of the ops that the lowering table does not have."""
    from torch._decomp import core_aten_decompositions

    from .._C import graph
    from . import foreach
    from .lower import table_name

    return {
        op: decomposition
        for op, decomposition in core_aten_decompositions().items()
        if not (isinstance(op, torch._ops.OpOverload) and graph.lowered(table_name(op)))
    } | foreach.decompositions()


class _Decompositions(Mapping[Any, Callable[..., Any]]):
    """:func:`decompositions`, made when first looked at: a graph found in a cache needs none."""

    def __getitem__(self, op: Any) -> Callable[..., Any]:
        return decompositions()[op]

    def __iter__(self) -> Iterator[Any]:
        return iter(decompositions())

    def __len__(self) -> int:
        return len(decompositions())

    def __bool__(self) -> bool:
        return True


def create_neuron_backend(**options: Any) -> Callable[..., Callable[..., Any]]:
    """A backend for ``torch.compile`` that has these options; a call's own options win."""
    _check_options(None, {key: value for key, value in options.items() if key != "model_name"})

    @functools.wraps(neuron_backend)
    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
        kwargs["options"] = {**options, **(kwargs.get("options") or {})}
        return neuron_backend(gm, example_inputs, **kwargs)

    return backend


def neuron_backend(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    **unknown: Any,
) -> Callable[..., Any]:
    """Compiles a Dynamo graph for static shapes; another shape is another graph.

    ``mode``: only "default" means something. ``options``: ``model_name`` labels the graphs.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    from .cache import CompiledProgram, compile_graph, torch_cache
    from .progress import progress

    if unknown:
        raise ValueError(
            f'backend "neuron" takes mode= and options=, not {", ".join(sorted(unknown))}'
        )
    if not torch._dynamo.config.assume_static_by_default:
        raise ValueError(
            'torch.compile(dynamic=True) is not possible with backend "neuron": NeuronCores run '
            "static shapes. Leave dynamic out or set it to False: every shape that is seen is "
            "compiled once and kept."
        )
    _check_options(mode, options)
    # A second shape would otherwise come in as a symbol, to be specialised here and, for a guard of
    # Dynamo's that then fails, once more. It is the process's setting: whoever compiles for
    # another backend too passes dynamic=True there.
    torch._dynamo.config.automatic_dynamic_shapes = False
    name = get_model_name()
    compiler = functools.partial(compile_graph, name=name)
    backward = functools.partial(compile_graph, name=name, lazily=True)
    backend = aot_autograd(
        fw_compiler=SerializableAOTDispatchCompiler(CompiledProgram, compiler),
        bw_compiler=SerializableAOTDispatchCompiler(CompiledProgram, backward),
        inference_compiler=SerializableAOTDispatchCompiler(CompiledProgram, compiler),
        decompositions=_Decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )
    with torch_cache(), progress.compiling(name):
        return backend(gm, example_inputs)
