"""Labels of compiled graphs: they show in errors, profiles and debug files."""

from __future__ import annotations

import os

import torch.distributed

_model_name = "model"


def set_model_name(name: str) -> None:
    """Labels the graphs that are compiled from here on."""
    global _model_name
    if not isinstance(name, str) or not name:
        raise ValueError(f"expected a non-empty string as model name, got {name!r}")
    _model_name = name


def get_model_name() -> str:
    return _model_name


def get_rank() -> int:
    """This process's rank: of the process group, else what its launcher says, else 0."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", "0"))
