"""A report as one HTML file that needs no other."""

from __future__ import annotations

import math
from html import escape

from .report import Report
from .text import HEADER, cells, quantity, summary

_WIDTH, _HEIGHT, _MARGIN = 720, 380, 60
_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; color: #222; }
table { border-collapse: collapse; } td, th { padding: 2px 10px; text-align: right; }
td:first-child, th:first-child { text-align: left; } tr.fused td { color: #777; font-size: 12px; }
tbody tr:not(.fused) { border-top: 1px solid #ddd; } svg { background: #fafafa; }
"""


def _roofline(report: Report) -> str:
    """FLOP/s over FLOPs per byte, both logarithmic; a dot for each kernel that has both."""
    machine = report.machine
    dots = [k for k in report.kernels if k.flops and k.bytes and k.seconds]
    if not dots or not machine.peak_flops:
        return "<p>No kernel with floating-point operations: no roofline.</p>"
    peak = max(machine.peak_flops.values())
    ridge = peak / machine.bytes_per_second
    left = math.log10(min([ridge / 10, *(k.intensity for k in dots)])) - 0.1
    right = math.log10(max([ridge * 10, *(k.intensity for k in dots)])) + 0.1
    rates = [k.flops / k.seconds for k in dots]
    low = math.log10(min([*rates, peak / 100])) - 0.1
    high = math.log10(max([*rates, peak])) + 0.15

    def x(intensity: float) -> float:
        share = (math.log10(intensity) - left) / (right - left)
        return _MARGIN + share * (_WIDTH - 2 * _MARGIN)

    def y(rate: float) -> float:
        share = (max(math.log10(rate), low) - low) / (high - low)
        return _HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN)

    parts = []
    for dtype, top in machine.peak_flops.items():
        corner = top / machine.bytes_per_second
        start = 10**left
        points = [(start, start * machine.bytes_per_second), (corner, top), (10**right, top)]
        line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="#555"/>')
        parts.append(
            f'<text x="{_WIDTH - _MARGIN}" y="{y(top) - 5:.1f}" text-anchor="end">'
            f"{escape(dtype)} {quantity(top, 'FLOP/s')}</text>"
        )
    for kernel, rate in zip(dots, rates, strict=True):
        weight = kernel.seconds * kernel.calls / report.kernel_seconds
        colour = "#c40" if kernel.engine else "#07c"
        title = f"{kernel.name}: {quantity(rate, 'FLOP/s')}, {weight:.0%} of the time"
        parts.append(
            f'<circle cx="{x(kernel.intensity):.1f}" cy="{y(rate):.1f}" '
            f'r="{3 + 12 * math.sqrt(weight):.1f}" fill="{colour}" fill-opacity="0.6">'
            f"<title>{escape(title)}</title></circle>"
        )
    parts.append(
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 15}" text-anchor="middle">FLOPs per byte, from '
        f"{10**left:.2g} to {10**right:.2g} (area: time; red: engines, blue: kernels)</text>"
    )
    return f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img">{"".join(parts)}</svg>'


def render(report: Report) -> str:
    lines = summary(report)
    head = "".join(f"<th>{escape(text)}</th>" for text in HEADER)
    rows = []
    for kernel in sorted(report.kernels, key=lambda k: -k.seconds * k.calls):
        row = "".join(f"<td>{escape(cell)}</td>" for cell in cells(kernel, report))
        rows.append(f"<tr>{row}</tr>")
        rows.append(
            f'<tr class="fused"><td colspan="{len(HEADER)}">{escape(kernel.fused)}</td></tr>'
        )
    return (
        f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>{escape(report.name)}</title>'
        f"<style>{_STYLE}</style><h1>{escape(report.name)}</h1>"
        f"<p>{'<br>'.join(escape(line) for line in lines)}</p>{_roofline(report)}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></html>\n"
    )
