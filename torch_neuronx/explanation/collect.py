"""Runs a function compiled and gathers what its kernels did."""

from __future__ import annotations

import collections
import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from .. import _C
from .report import Kernel, Machine, Report

if TYPE_CHECKING:
    from ..neuron_dynamo_backend.program import Program

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
    compiled = function if _is_compiled(function) else torch.compile(function, backend="neuron")
    with Watch(_name(function)) as watch:
        first_seconds = _seconds_of(lambda: compiled(*args, **kwargs))
        watch.restart()
        seconds = min(_seconds_of(lambda: compiled(*args, **kwargs)) for _ in range(_RUNS))
        return watch.report(first_seconds, seconds, calls=_RUNS)


def _seconds_of(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    torch.neuron.synchronize()
    return time.perf_counter() - start


def _name(function: Any) -> str:
    function = getattr(function, "_orig_mod", function)
    return getattr(function, "__qualname__", type(function).__name__)


class Watch:
    """Measures the compiled programs that run inside its ``with``.

    :meth:`report` tells of them, while the ``with`` lasts. ``name`` is the report's.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._programs: dict[int, Program] = {}
        self._exit = contextlib.ExitStack()
        self._breaks: collections.Counter[str] = collections.Counter()

    def __enter__(self) -> Watch:
        from ..neuron_dynamo_backend.cache import observe_runs

        self._breaks = _graph_breaks()
        self._exit.enter_context(observe_runs(self._observe))
        return self

    def __exit__(self, *exc: object) -> None:
        self._exit.close()
        for _, executable in self._executables():
            executable.measure_steps(False)

    def _observe(self, program: Program) -> None:
        if id(program) in self._programs:
            return
        self._programs[id(program)] = program
        for step in program.graphs():
            step.executable.measure_steps(True)

    def _executables(self) -> Iterator[tuple[str, Any]]:
        for program in self._programs.values():
            for step in program.graphs():
                yield program.name, step.executable

    def restart(self) -> None:
        """Forgets the times, not the programs."""
        for _, executable in self._executables():
            executable.measure_steps(True)

    def report(self, first_seconds: float | None, seconds: float, calls: int = 1) -> Report:
        """What ran, as ``calls`` equal calls of something that takes ``seconds``.

        Raises RuntimeError if nothing did.
        """
        if not self._programs:
            raise RuntimeError(
                f"nothing of {self.name} ran compiled for neuron: compile it with "
                'backend="neuron", and pass tensors'
            )
        executables = list(self._executables())
        kernels = [
            _kernel(graph, step, calls)
            for graph, executable in executables
            for step in executable.steps()
            if step["runs"] > 0
        ]
        return Report(
            name=self.name,
            machine=_machine(frozenset(kernel.dtype for kernel in kernels if kernel.flops > 0)),
            kernels=kernels,
            graphs=len(self._programs),
            graph_breaks=dict(_graph_breaks() - self._breaks),
            first_seconds=first_seconds,
            seconds=seconds,
            peak_bytes=max((_bytes(e) for _, e in executables), default=0),
            scratch_bytes=max((e.scratch_bytes for _, e in executables), default=0),
        )


def _graph_breaks() -> collections.Counter[str]:
    from torch._dynamo.utils import counters

    return collections.Counter(counters["graph_break"])


def _bytes(executable: Any) -> int:
    return executable.input_bytes + executable.output_bytes + executable.scratch_bytes


def _kernel(graph: str, step: dict[str, Any], calls: int) -> Kernel:
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
        calls=max(1, round(step["runs"] / calls)),
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
