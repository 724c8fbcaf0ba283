"""What a compiled graph was made into."""

from __future__ import annotations

import pytest
import torch
import torch._functorch.config

from torch_neuronx.neuron_dynamo_backend import partition


@pytest.fixture
def building():
    """Every program is built: none comes from torch's cache, which does not see patched code."""
    with torch._functorch.config.patch(enable_autograd_cache=False):
        yield


@pytest.fixture
def steps(monkeypatch, building):
    """The kinds of steps of the programs that are built."""
    kinds = []
    build = partition._build

    def record(*args):
        program = build(*args)
        kinds.append([type(s).__name__.removesuffix("Step").lower() for s in program.steps])
        return program

    monkeypatch.setattr(partition, "_build", record)
    return kinds
