"""``torch.compile(backend="neuron")``."""

from __future__ import annotations

from .backend import create_neuron_backend, neuron_backend
from .errors import NEFFCompilationError, NEFFExecutionError
from .names import get_model_name, get_rank, set_model_name

__all__ = [
    "NEFFCompilationError",
    "NEFFExecutionError",
    "create_neuron_backend",
    "get_model_name",
    "get_rank",
    "neuron_backend",
    "set_model_name",
]
