"""``torch.compile(backend="neuron")``."""

from __future__ import annotations

from .backend import neuron_backend
from .names import get_model_name, set_model_name

__all__ = ["get_model_name", "neuron_backend", "set_model_name"]
