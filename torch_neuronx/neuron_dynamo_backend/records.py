"""What each graph of ``torch.compile`` cost: ``torch.neuron.get_dynamo_metrics()``."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from .program import CallStep, Program

_COLLECTIVES = ("_c10d_functional", "_c10d_functional_autograd")


@dataclass
class Record:
    """One graph. Times in nanoseconds; the executables tell what generating their code took."""

    graph_id: int
    graph_name: str
    model_name: str
    graph_node_count: int
    timestamp: float
    passes: int = 0
    lowering: int = 0
    has_collectives: bool = False
    executables: list[Any] = field(default_factory=list)

    def close(self, program: Program) -> None:
        self.executables = [graph.executable for graph in program.graphs()]
        self.has_collectives = any(
            isinstance(step, CallStep)
            and isinstance(step.function, torch._ops.OpOverload)
            and step.function.namespace in _COLLECTIVES
            for step in program.steps
        )

    def as_dict(self) -> dict[str, Any]:
        """Waits for the code of the graph's kernels."""
        compiling = sum(executable.compile_nanoseconds for executable in self.executables)
        return {
            "graph_id": self.graph_id,
            "graph_name": self.graph_name,
            "model_name": self.model_name,
            "has_collectives": self.has_collectives,
            "graph_node_count": self.graph_node_count,
            "timestamp": self.timestamp,
            "torch_neuronx_fx_passes_us": self.passes / 1e3,
            "torch_neuronx_lower_us": self.lowering / 1e3,
            "torch_neuronx_compile_us": compiling / 1e3,
        }


_lock = threading.Lock()
_records: list[Record] = []
_current = threading.local()


def open_record(gm: GraphModule, number: int, graph: str, model: str) -> Record:
    return Record(number, graph, model, len(gm.graph.nodes), time.time())


class timed:  # noqa: N801 (a context manager)
    """Adds the time inside to a field of the record that this thread compiles, if there is one."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._start = time.perf_counter_ns()

    def __exit__(self, *exc_info: object) -> None:
        record = getattr(_current, "record", None)
        if record is not None:
            spent = time.perf_counter_ns() - self._start
            setattr(record, self._what, getattr(record, self._what) + spent)


class compiling:  # noqa: N801 (a context manager)
    """Makes a record the one that this thread compiles; keeps it if nothing was raised."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def __enter__(self) -> Record:
        self._start = time.perf_counter_ns()
        _current.record = self._record
        return self._record

    def __exit__(self, kind: object, *exc_info: object) -> None:
        _current.record = None
        if kind is None:
            whole = time.perf_counter_ns() - self._start
            self._record.passes = whole - self._record.lowering
            with _lock:
                _records.append(self._record)


def get() -> list[dict[str, Any]]:
    """One entry per graph that this process compiled, in order.

    ``graph_id`` counts them, ``graph_name`` is the name in errors and profiles, ``model_name`` what
    ``set_model_name`` was given; ``graph_node_count`` is of AOTAutograd's graph; ``timestamp`` in
    seconds since the epoch. ``torch_neuronx_lower_us``: from nodes to the IR;
    ``torch_neuronx_fx_passes_us``: everything else in the caller;
    ``torch_neuronx_compile_us``: generating code, summed over the threads that do it, 0 if all of
    it was in a cache. Waits for code that is still being generated.
    """
    with _lock:
        records = list(_records)
    return [record.as_dict() for record in records]


def reset() -> None:
    with _lock:
        _records.clear()
