"""The report: numbers, their text form, and data for other programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Machine:
    """What was measured of the machine in this process."""

    name: str
    peak_flops: dict[str, float]  # per second, by dtype ("f32"), two per multiply-add
    bytes_per_second: float  # of a large copy, reads and writes together


@dataclass(frozen=True)
class Kernel:
    """One step of a compiled graph: a generated kernel, or a call of an engine."""

    graph: str
    name: str
    fused: str  # the operations of a kernel; the tensors of an engine's call
    engine: bool
    dtype: str
    bytes_read: int  # from memory, each element once
    bytes_written: int
    flops: int  # two per multiply-add
    transcendentals: int  # evaluations of exp, tanh, erf, ...
    calls: int  # in one call of the function
    seconds: float  # the least of the measured runs

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """FLOPs per byte of memory traffic."""
        return self.flops / self.bytes if self.bytes else 0.0

    def limit(self, machine: Machine) -> tuple[float, str]:
        """Seconds that the roofline allows at least, and what bounds them: memory or compute.

        A kernel whose operands are in the cache can be faster than its memory limit.
        """
        memory = self.bytes / machine.bytes_per_second
        peak = machine.peak_flops.get(self.dtype)
        compute = self.flops / peak if peak else 0.0
        return (compute, "compute") if compute > memory else (memory, "memory")

    def share(self, machine: Machine) -> float:
        """Of the roofline, reached: 1 is the limit."""
        return self.limit(machine)[0] / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Report:
    """What :func:`torch_neuronx.explain` found. ``print`` it, or see :meth:`to_html`."""

    name: str
    machine: Machine
    kernels: list[Kernel]
    graphs: int
    graph_breaks: dict[str, int]  # reason: times; only those of compiles during this report
    first_seconds: float | None  # of the first call, which compiles; None: all was measured as one
    seconds: float  # of a whole call, with the host's work and what runs between graphs
    peak_bytes: int  # of the largest graph: inputs, outputs and temporaries
    scratch_bytes: int  # of the largest graph: temporaries

    @property
    def bytes(self) -> int:
        return sum(kernel.bytes * kernel.calls for kernel in self.kernels)

    @property
    def flops(self) -> int:
        return sum(kernel.flops * kernel.calls for kernel in self.kernels)

    @property
    def kernel_seconds(self) -> float:
        return sum(kernel.seconds * kernel.calls for kernel in self.kernels)

    def __str__(self) -> str:
        from .text import render

        return render(self)

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain data; per kernel also its roofline limit, bound and share."""
        out = asdict(self)
        for data, kernel in zip(out["kernels"], self.kernels, strict=True):
            seconds, bound = kernel.limit(self.machine)
            data |= {"limit_seconds": seconds, "bound": bound, "share": kernel.share(self.machine)}
        return out | {
            "bytes": self.bytes,
            "flops": self.flops,
            "kernel_seconds": self.kernel_seconds,
        }

    def to_html(self, path: str | Path | None = None) -> str:
        """One file that needs no other: table and roofline. Written to ``path`` if given."""
        from .html import render

        text = render(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text
