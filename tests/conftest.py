"""Each test session has its own caches of compiled code: counts of compiles mean something."""

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

CACHES = {"TORCH_NEURONX_NEFF_CACHE_DIR": "neff", "TORCHINDUCTOR_CACHE_DIR": "torch"}
ROOT = Path(__file__).resolve().parents[1]

# Before torch is imported: the variables are read once. Workers of pytest-xdist inherit both.
_own_caches = ""
if any(name not in os.environ for name in CACHES):
    _own_caches = tempfile.mkdtemp(prefix="neuron-tests-")
    for _name, _folder in CACHES.items():
        os.environ.setdefault(_name, f"{_own_caches}/{_folder}")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _own_caches:
        shutil.rmtree(_own_caches, ignore_errors=True)


@pytest.fixture
def graphs() -> Callable[[], int]:
    """Number of graphs, compiled or found in torch's cache, since the test began."""
    import torch
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters["neuron"].clear()
    return lambda: sum(counters["neuron"].values())


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
