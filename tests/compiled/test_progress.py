"""The progress bar: on a terminal and after a while only; it counts the kernels that are ready."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import textwrap
import threading

import pytest

from torch_neuronx.neuron_dynamo_backend import progress as module

SCRIPT = textwrap.dedent("""
    import sys
    import torch
    from torch_neuronx.neuron_dynamo_backend import progress
    progress.DELAY_SECONDS = float(sys.argv[1])
    f = torch.compile(lambda x: torch.softmax(x, -1) @ x, backend="neuron")
    print(f(torch.ones(8, 8, device="neuron")).sum().item())
""")


def on_terminal(*arguments: str) -> str:
    """What the script writes when its standard error is a terminal."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))  # nothing is shown on a terminal without lines
    command = [sys.executable, "-c", SCRIPT, *arguments]
    process = subprocess.Popen(command, stdout=slave, stderr=slave)
    os.close(slave)
    out = b""
    with open(master, "rb", buffering=0) as reader:
        while True:
            try:
                data = reader.read(4096)
            except OSError:  # EIO: the other end was closed
                break
            if not data:
                break
            out += data
    assert process.wait(60) == 0, out
    return out.decode()


def test_a_long_compile_shows_a_bar_on_a_terminal():
    out = on_terminal("0")
    assert "compiling model for neuron" in out and "64.0" in out
    assert "\n" not in out[: out.index("64.0")].rstrip(), "the bar goes when all is compiled"


def test_a_short_compile_shows_none():
    assert on_terminal("1000").strip() == "64.0"


def test_no_bar_without_a_terminal():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "0"], capture_output=True, text=True, timeout=100
    )
    assert done.stdout.strip() == "64.0" and "compiling" not in done.stderr


class Executable:
    """Three kernels beside an engine's step; the test makes them ready."""

    def __init__(self) -> None:
        self.pending_steps = 3

    def steps(self):
        return [{"engine": False}] * 3 + [{"engine": True}]


class Program:
    def __init__(self) -> None:
        self.executable = Executable()

    def graphs(self):
        return [self]


class Watched:
    """A progress on a terminal of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.progress = module.Progress()
        self.shown = ""
        self.changed = threading.Condition()
        monkeypatch.setattr(sys, "stderr", self)
        monkeypatch.setattr(module, "DELAY_SECONDS", 0.0)
        monkeypatch.setattr(module, "_INTERVAL_SECONDS", 0.001)

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        pass

    def write(self, text: str) -> int:
        with self.changed:
            self.shown += text
            self.changed.notify_all()
        return len(text)

    def wait_for(self, text: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: text in self.shown, 30), self.shown


def test_it_counts_the_kernels_that_are_ready(monkeypatch: pytest.MonkeyPatch):
    watched = Watched(monkeypatch)
    program = Program()
    with watched.progress.compiling("mine"):
        watched.wait_for("compiling mine for neuron: 0kernel")
        watched.progress.add(program)
    watched.wait_for("0/3")
    program.executable.pending_steps = 1
    watched.wait_for("2/3")
    thread = watched.progress._thread
    program.executable.pending_steps = 0
    thread.join(30)
    assert not thread.is_alive() and watched.progress._thread is None


def test_a_compile_that_fails_ends_the_bar(monkeypatch: pytest.MonkeyPatch):
    watched = Watched(monkeypatch)
    with pytest.raises(ValueError), watched.progress.compiling("mine"):
        watched.wait_for("compiling mine for neuron")
        thread = watched.progress._thread
        raise ValueError
    thread.join(30)
    assert not thread.is_alive()
