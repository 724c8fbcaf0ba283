"""Processes that the cache's tests may harm."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

# What a process of `run_with_faults` begins with. `arm` numbers calls from 0.
PRELUDE = """
import ctypes, errno, json, os, signal, sys, time
from pathlib import Path
import torch
from torch_neuronx import _C
faults = ctypes.CDLL(None)
COUNT, FAIL, KILL_BEFORE, KILL_AFTER, CUT_SHORT = range(5)
KEY, OTHER = "00112233445566778899aabbccddeeff", "ff112233445566778899aabbccddeeff"
SECTIONS, MADE_FOR = {"code": bytes(range(256)) * 40, "ir": b"text"}, "compiler 1 avx2"
directory = Path(sys.argv[1])

def file_of(key=KEY):
    return directory / key[:2] / key[2:4] / f"{key}.neff"

def counts():
    return _C.device.compilation_metrics()

def calls_of(work):
    faults.fault_arm(-1, COUNT, 0)
    work()
    return faults.fault_disarm()

def with_fault(at, action, error, work):
    faults.fault_arm(at, action, error)
    try:
        return work()
    finally:
        faults.fault_disarm()

def fork(work):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    return pid

def wait(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


@pytest.fixture(scope="session")
def faults_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-ldl"]
    # The build needs g++, so it is here.
    subprocess.run(["g++", "-x", "c", HERE / "faults.c", "-o", library, *flags], check=True)
    return library


@pytest.fixture
def run_with_faults(faults_library: Path, tmp_path: Path) -> Callable[..., str]:
    """Runs code after PRELUDE with an empty directory; returns what it printed.

    Fails the test unless it ends with status 0. ``before``: a command that runs the interpreter.
    """

    def run(code: str, *arguments: str, before: list[str] = [], **env: str) -> str:  # noqa: B006
        directory = tmp_path / "cache"
        done = subprocess.run(
            [
                *before,
                sys.executable,
                "-c",
                PRELUDE + textwrap.dedent(code),
                str(directory),
                *arguments,
            ],
            env={**os.environ, "LD_PRELOAD": str(faults_library), **env},
            cwd=HERE.parents[1],
            capture_output=True,
            text=True,
            timeout=115,
        )
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    return run
