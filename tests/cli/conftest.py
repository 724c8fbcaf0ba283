"""Runs the command as a user does: as a process of its own."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "torch_neuronx"]

Run = Callable[..., subprocess.CompletedProcess[str]]


def own_environment(**changes: str) -> dict[str, str]:
    """This process's, without what a terminal's user may have set."""
    return {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")} | changes


@pytest.fixture
def command() -> Run:
    """command(*arguments, code=expected exit code, **variables)"""

    def run(*arguments: object, code: int = 0, input: str = "", **env: str):
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            env=own_environment(**env),
            cwd=ROOT,
            input=input,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == code, f"{done.returncode}: {done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        assert "\033" not in done.stdout, "colours outside a terminal"
        return done

    return run


def on_terminal(*arguments: object, **env: str) -> str:
    """What the command writes to a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=own_environment(TERM="xterm", **env),
        cwd=ROOT,
        stdout=slave,
        stdin=subprocess.DEVNULL,
    )
    os.close(slave)
    out = b""
    while True:
        try:
            data = os.read(master, 4096)
        except OSError:  # EIO: the other end was closed
            break
        if not data:
            break
        out += data
    os.close(master)
    assert process.wait(60) == 0
    return out.decode()
