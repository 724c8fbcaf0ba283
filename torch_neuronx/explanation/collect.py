"""Runs a function compiled and gathers what its kernels did."""

from __future__ import annotations

import collections
import functools
import time
from collections.abc import Callable
from typing import Any

import torch

from .. import _C
from .report import Kernel, Machine, Report

_RUNS = 3  # measured; a kernel's time is the least of them


def explain(function: Callable[..., Any]) -> Callable[..., Report]:
    """``explain(f)(*args, **kwargs)`` runs ``f`` and returns a :class:`Report`.

    ``function``: an ``nn.Module`` or a function; what is not yet compiled for this device is, with
    ``torch.compile(backend="neuron")``. It is called once to compile and three times to measure:
    what it changes changes four times. Raises RuntimeError if none of it ran compiled.
    """
    if not callable(function):
        raise TypeError(f"explain takes a function or a module, got {type(function).__name__}")

    @functools.wraps(getattr(function, "forward", function))
    def run(*args: Any, **kwargs: Any) -> Report:
        return _explain(function, args, kwargs)

    return run


def _is_compiled(function: Any) -> bool:
    return (
        hasattr(function, "_torchdynamo_orig_callable")
        or isinstance(function, torch._dynamo.OptimizedModule)
        or getattr(function, "_compiled_call_impl", None) is not None
    )


def _explain(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Report:
    from torch._dynamo.utils import counters

    from ..neuron_dynamo_backend.cache import collect_programs

    compiled = function if _is_compiled(function) else torch.compile(function, backend="neuron")
    breaks_before = collections.Counter(counters["graph_break"])
    start = time.perf_counter()
    with collect_programs() as programs:
        compiled(*args, **kwargs)
        torch.neuron.synchronize()
    first_seconds = time.perf_counter() - start
    breaks = collections.Counter(counters["graph_break"]) - breaks_before
    if not programs:
        raise RuntimeError(
            f"nothing of {_name(function)} ran compiled for neuron: compile it with "
            'backend="neuron", and pass tensors'
        )
    unique = list({id(program): program for program in programs}.values())
    graphs = [(program, step) for program in unique for step in program.graphs()]
    for _, step in graphs:
        step.executable.measure_steps(True)
    seconds = []
    try:
        for _ in range(_RUNS):
            start = time.perf_counter()
            compiled(*args, **kwargs)
            torch.neuron.synchronize()
            seconds.append(time.perf_counter() - start)
        kernels = [
            _kernel(program.name, step)
            for program, graph in graphs
            for step in graph.executable.steps()
            if step["runs"] > 0
        ]
    finally:
        for _, step in graphs:
            step.executable.measure_steps(False)
    return Report(
        name=_name(function),
        machine=_machine(frozenset(kernel.dtype for kernel in kernels if kernel.flops > 0)),
        kernels=kernels,
        graphs=len(unique),
        graph_breaks=dict(breaks),
        first_seconds=first_seconds,
        seconds=min(seconds),
        peak_bytes=max(_bytes(step.executable) for _, step in graphs) if graphs else 0,
        scratch_bytes=max((step.executable.scratch_bytes for _, step in graphs), default=0),
    )


def _name(function: Any) -> str:
    function = getattr(function, "_orig_mod", function)
    return getattr(function, "__qualname__", type(function).__name__)


def _bytes(executable: Any) -> int:
    return executable.input_bytes + executable.output_bytes + executable.scratch_bytes


def _kernel(graph: str, step: dict[str, Any]) -> Kernel:
    return Kernel(
        graph=graph,
        name=step["name"],
        fused=step["fused"],
        engine=step["engine"],
        dtype=step["dtype"],
        bytes_read=step["bytes_read"],
        bytes_written=step["bytes_written"],
        flops=step["flops"],
        transcendentals=step["transcendentals"],
        calls=max(1, round(step["runs"] / _RUNS)),
        seconds=step["least_nanoseconds"] * 1e-9,
    )


@functools.cache
def _machine(dtypes: frozenset[str]) -> Machine:
    """Measured once per process: the peak of multiply-adds by dtype, and of copying memory."""
    measurable = sorted(dtypes & {"f32", "bf16", "f16", "f64"} | {"f32"})
    peaks = {}
    for dtype in measurable:
        try:
            peaks[dtype] = _C.kernels.measure_peak(dtype, 0.1)
        except RuntimeError:  # no peak loop for this dtype: its kernels have no FLOP limit shown
            continue
    properties = torch.neuron.get_device_properties(0)
    return Machine(
        name=f"{properties.name}, {properties.instruction_set}, {properties.num_threads} threads",
        peak_flops=peaks,
        bytes_per_second=_copy_bandwidth(),
    )


def _copy_bandwidth() -> float:
    """Bytes read and written per second by the device copying 128 MiB, the best of five."""
    source = torch.zeros(1 << 25, dtype=torch.float32, device="neuron")
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(6):  # the first touches the memory
        torch.neuron.synchronize()
        start = time.perf_counter()
        target.copy_(source)
        torch.neuron.synchronize()
        best = min(best, time.perf_counter() - start)
    return 2 * source.nbytes / best
