"""Text for people: colours where a terminal shows them, tables, sizes and ages."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def has_colour() -> bool:
    """Only on a terminal, and not if NO_COLOR is set (https://no-color.org)."""
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def paint(text: str, colour: str) -> str:
    return f"\033[{_COLOURS[colour]}m{text}\033[0m" if has_colour() else text


def _width(text: str) -> int:
    return len(re.sub(r"\033\[\d*m", "", text))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns as wide as their widest cell; those whose numbers are in ``right`` end flush."""
    widths = [max(_width(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = []
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            padding = " " * (width - _width(cell))
            padded.append(padding + cell if i in right else cell + padding)
        return "  ".join(padded).rstrip()

    return "\n".join([paint(line(header), "bold"), *map(line, rows)])


def size(count: float) -> str:
    """``1536`` as ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def age(seconds: float) -> str:
    """The largest whole unit: ``3 h``; ``future`` for what a wrong clock has stamped."""
    if seconds < -60:
        return "future"
    for unit in ("w", "d", "h", "m"):
        if seconds >= _SECONDS[unit]:
            return f"{int(seconds // _SECONDS[unit])} {unit}"
    return f"{max(0, int(seconds))} s"


def parse_size(text: str) -> int:
    """Bytes of ``500M``, ``4G``, ``4GiB`` or a plain number."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", text.strip().upper())
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}': expected a size such as 500M or 4G")
    return int(float(match[1]) * _SIZES[match[2]])


def parse_duration(text: str) -> float:
    """Seconds of ``90s``, ``15m``, ``12h``, ``30d`` or ``2w``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}': expected a time such as 12h or 30d")
    return float(match[1]) * _SECONDS[match[2]]
