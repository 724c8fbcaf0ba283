"""Compiled graphs in torch's own cache of AOTAutograd results, and in its portable archive.

With an entry of that cache a process neither traces through AOTAutograd nor lowers: it loads the
program (:mod:`.program`) and finds the machine code in the NEFF cache.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import unittest.mock
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._inductor.output_code import OutputCode
from torch.compiler._cache import CacheArtifactManager
from torch.fx import GraphModule

from .. import _C
from . import records
from .artifact import NeffArtifact
from .partition import build_program
from .program import NotPortable, Program
from .progress import progress

_counter = itertools.count()

# Called with every program that is about to run.
_observers: list[Callable[[Program], None]] = []


@contextlib.contextmanager
def observe_runs(observer: Callable[[Program], None]) -> Iterator[None]:
    """Inside, ``observer`` is called with each program right before each of its runs."""
    entry = lambda program: observer(program)  # noqa: E731 - an identity of its own
    _observers.append(entry)
    try:
        yield
    finally:
        _observers.remove(entry)


class CompiledProgram(OutputCode):
    """What AOTAutograd gets from the compiler, calls, and keeps."""

    def __init__(self, program: Program, close: Callable[[], None] | None = None) -> None:
        self.program = program
        self._run: Callable[[list[Any]], list[Any]] | None = program.runner()
        self._close = close
        self._recorded = False
        # It is called with one list, which may be emptied. Wrappers copy what is the instance's.
        self._boxed_call = True

    def __call__(self, inputs: Sequence[Any]) -> Any:
        if self._close is not None:
            self._close()
            self._close = None
        assert self._run is not None and isinstance(inputs, list)
        for observer in _observers:
            observer(self.program)
        outputs = self._run(inputs)
        if not self._recorded:
            self._recorded = True
            record_neffs(self.program)
        return outputs

    def prepare_for_serialization(self) -> None:
        self._run = self._close = None
        try:
            self.program.__getstate__()
        except NotPortable as error:
            raise BypassAOTAutogradCache(f"graph {self.program.name} holds {error}") from error

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """After loading: the same program in this process."""
        counters["neuron"]["graphs_loaded"] += 1
        with progress.compiling(self.program.name):
            self.program.load()
            progress.add(self.program)
        self._run = self.program.runner()
        self._recorded = False

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        pass


def compile_graph(
    gm: GraphModule, example_inputs: Sequence[Any], *, name: str, lazily: bool = False
) -> CompiledProgram:
    """Compiles one graph of AOTAutograd. ``lazily``: not inside :func:`torch_cache`."""
    model, number = name, next(_counter)
    name = f"{model}_{number}"
    _C.compiler.write_stage(name, "0_fx.py", gm.print_readable(print_output=False))
    counters["neuron"]["graphs_compiled"] += 1
    record = records.open_record(gm, number, name, model)
    with progress.compiling(name), records.compiling(record):  # backward: when it first runs
        program = build_program(gm, name)
        progress.add(program)
        record.close(program)
    return CompiledProgram(program, _save_whole_entries() if lazily else None)


# --- torch's cache of AOTAutograd results ---------------------------------------------------------


@functools.cache
def _version() -> str:
    """What a program depends on besides the graph: this package's code."""
    digest = hashlib.sha256(torch.__version__.encode())
    assert _C.__file__ is not None
    for path in [Path(_C.__file__), *sorted(Path(__file__).parent.glob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def torch_cache() -> Iterator[None]:
    """Inside, AOTAutograd looks for programs in its cache and keeps them there."""
    fallback = _C.device.env_bool("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION")
    tag = f"{torch.compiler.config.cache_key_tag}neuron {_version()} {int(fallback)}"
    with (
        torch.compiler.config.patch(cache_key_tag=tag),
        torch._functorch.config.patch(bundled_autograd_cache=True),
        # The key asks for the custom passes of inductor's backends, for which it would import them
        # all (a third of a second). None of them takes part here.
        unittest.mock.patch("torch._inductor.codecache.init_backend_registration", lambda: None),
    ):
        yield


def _save_whole_entries() -> Callable[[], None] | None:
    """For a backward graph, which is compiled when it first runs, outside of :func:`torch_cache`.

    AOTAutograd keeps it right after the compiler returns, in the same context; the returned
    function, called by the first run, ends the setting (which is of this thread alone).
    """
    if torch._functorch.config.bundled_autograd_cache:
        return None
    torch._functorch.config.bundled_autograd_cache = True

    def close() -> None:
        torch._functorch.config.bundled_autograd_cache = False

    return close


# --- torch.compiler.save_cache_artifacts ----------------------------------------------------------


def record_neffs(program: Program) -> None:
    """Hands the machine code of a program to ``torch.compiler.save_cache_artifacts``."""
    for graph in program.graphs():
        for key, content in graph.executable.neffs():
            CacheArtifactManager.record_artifact(NeffArtifact.type(), key, content)
