"""Each test session has its own cache of executables, so that counts of compiles mean something."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

CACHE = "TORCH_NEURONX_NEFF_CACHE_DIR"
ROOT = Path(__file__).resolve().parents[1]

# Before torch is imported: the variables are read once. Workers of pytest-xdist inherit both.
_own_cache = "" if CACHE in os.environ else tempfile.mkdtemp(prefix="neff-tests-")
if _own_cache:
    os.environ[CACHE] = _own_cache
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _own_cache:
        shutil.rmtree(_own_cache, ignore_errors=True)


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Runs code in a new interpreter with these variables set; returns what it printed.

    Fails the test if the interpreter does not end with status 0.
    """

    def run(code: str, timeout: float = 120, **env: str) -> str:
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**os.environ, **env},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert result.returncode == 0, f"status {result.returncode}\n{result.stderr}"
        return result.stdout.strip()

    return run
