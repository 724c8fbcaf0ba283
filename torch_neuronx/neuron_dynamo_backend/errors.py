"""What ``torch.compile(backend="neuron")`` raises of its own."""

from __future__ import annotations


class NEFFCompilationError(RuntimeError):
    """A graph cannot be compiled for the device."""


class NEFFExecutionError(RuntimeError):
    """A compiled graph was called with what it cannot run on."""
