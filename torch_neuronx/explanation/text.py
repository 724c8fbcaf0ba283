"""A report as text."""

from __future__ import annotations

from .report import Kernel, Report

HEADER = ("KERNEL", "CALLS", "TIME", "OF ALL", "MEMORY", "FLOP", "FLOP/B", "LIMIT", "REACHED")


def quantity(value: float, unit: str) -> str:
    """3 significant digits with an SI prefix: ``quantity(1.5e6, "B")`` is "1.5 MB"."""
    if value == 0:
        return f"0 {unit}"
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, "")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    for factor, prefix in ((1e-3, "m"), (1e-6, "µ")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value / 1e-9:.3g} n{unit}"


def cells(kernel: Kernel, report: Report) -> tuple[str, ...]:
    bound = kernel.limit(report.machine)[1]
    total = report.kernel_seconds
    return (
        kernel.name,
        str(kernel.calls),
        quantity(kernel.seconds, "s"),
        f"{kernel.seconds * kernel.calls / total:.0%}" if total else "",
        quantity(kernel.bytes, "B"),
        quantity(kernel.flops, ""),
        f"{kernel.intensity:.3g}",
        bound,
        f"{kernel.share(report.machine):.0%}",
    )


def _times(report: Report) -> str:
    kernels = f"of which kernels {quantity(report.kernel_seconds, 's')}"
    if report.first_seconds is None:
        return f"ran {quantity(report.seconds, 's')}, {kernels}"
    first, then = quantity(report.first_seconds, "s"), quantity(report.seconds, "s")
    return f"first call {first}, then {then}, {kernels}"


def summary(report: Report) -> list[str]:
    peaks = ", ".join(f"{quantity(v, 'FLOP/s')} {k}" for k, v in report.machine.peak_flops.items())
    lines = [
        f"{report.name} on {report.machine.name}",
        f"machine, measured: {peaks}; copies {quantity(report.machine.bytes_per_second, 'B/s')}",
        _times(report),
        f"{report.graphs} graph(s), {len(report.kernels)} steps, moving "
        f"{quantity(report.bytes, 'B')} for {quantity(report.flops, 'FLOP')}",
        f"memory of the largest graph {quantity(report.peak_bytes, 'B')}, temporaries "
        f"{quantity(report.scratch_bytes, 'B')}",
    ]
    for reason, count in report.graph_breaks.items():
        lines.append(f"graph break ({count}): {reason}")
    return lines


def render(report: Report) -> str:
    rows = sorted(report.kernels, key=lambda k: -k.seconds * k.calls)
    table = [HEADER, *(cells(kernel, report) for kernel in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADER))]
    lines = summary(report) + [""]
    for row, kernel in zip(table, [None, *rows], strict=True):
        texts = [row[0].ljust(widths[0])]
        texts += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(texts).rstrip())
        if kernel is not None:
            lines.append(f"    {kernel.fused}")
    return "\n".join(lines)
