"""What a compiled function does on this machine: kernels, bytes, FLOPs, times, the roofline."""

from __future__ import annotations

from .collect import Watch, explain
from .report import Kernel, Machine, Report

__all__ = ["Kernel", "Machine", "Report", "Watch", "explain"]
