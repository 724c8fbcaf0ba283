"""A progress bar for compiles that take long, on a terminal.

Kernels compile in the background while the graph's first run waits for them, so no one function
lasts as long as a compile does: a thread watches from the first graph to the last kernel.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .program import Program

DELAY_SECONDS = 2.0  # shorter compiles show nothing
_INTERVAL_SECONDS = 0.1


class Progress:
    """Counts what is being compiled, and shows it after :data:`DELAY_SECONDS`.

    One object serves all threads. Its own thread lives while there is something to wait for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._graphs = 0  # being traced or lowered
        self._name = ""
        self._executables: list[Any] = []
        self._kernels = 0  # of those
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def compiling(self, name: str) -> Iterator[None]:
        """Around the tracing and lowering of a graph. Does nothing unless stderr is a terminal."""
        if not sys.stderr.isatty():
            yield
            return
        with self._lock:
            self._graphs += 1
            self._name = name
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._graphs -= 1

    def add(self, program: Program) -> None:
        """``program``'s kernels are compiled in the background from now on."""
        if self._thread is None:
            return
        executables = [step.executable for step in program.graphs()]
        kernels = sum(not s["engine"] for executable in executables for s in executable.steps())
        with self._lock:
            self._executables += executables
            self._kernels += kernels

    def _state(self) -> tuple[bool, int, int]:
        """Whether the watch goes on; kernels that are compiled, and all. Ends the watch if not."""
        with self._lock:
            pending = sum(executable.pending_steps for executable in self._executables)
            done, total = max(0, self._kernels - pending), self._kernels
            going_on = self._graphs > 0 or pending > 0
            if not going_on:
                self._executables, self._kernels, self._thread = [], 0, None
            return going_on, done, total

    def _watch(self) -> None:
        deadline = time.monotonic() + DELAY_SECONDS
        bar = None
        while True:
            going_on, done, total = self._state()
            if not going_on:
                break
            if bar is None and time.monotonic() >= deadline:
                bar = _bar(total)
            if bar is not None:
                bar.set_description_str(f"compiling {self._name} for neuron", refresh=False)
                bar.n, bar.total = done, total or None
                bar.refresh()
            time.sleep(_INTERVAL_SECONDS)
        if bar is not None:
            bar.close()


def _bar(total: int) -> Any:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0  # no thread of tqdm's beside the one that updates it

    return Bar(total=total or None, unit="kernel", leave=False)


progress = Progress()
