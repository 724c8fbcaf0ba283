"""Writes the pages of docs/ that are made from tables in the code."""

from __future__ import annotations

from pathlib import Path

import torch  # noqa: F401 (the extension needs torch loaded first)

from torch_neuronx import _C

DOCS = Path(__file__).resolve().parents[1] / "docs"


def environment() -> str:
    lines = [
        "# Environment variables",
        "",
        "Made by `make docs` from `csrc/support/env_table.inc`. Each is read once, at its first",
        "use. A value that cannot be understood is an error that names the variable.",
        "",
        "| variable | type | default | meaning |",
        "|---|---|---|---|",
    ]
    for name, kind, default, text in _C.device.env_table():
        shown = f"`{default}`" if default else "empty"
        lines.append(f"| `{name}` | {kind.lower()} | {shown} | {text} |")
    return "\n".join(lines) + "\n"


def ops() -> str:
    names = _C.compiler.lowered_ops()
    lines = [
        "# Lowered ops",
        "",
        "Made by `make docs` from the lowering table (`csrc/lowering`). Each op runs on the",
        "device together with its out= and in-place forms; views and copies do too. What a",
        "library computes follows below. Every other op runs on the CPU, visibly: see",
        "`torch_neuronx.get_fallback_ops()`.",
        "",
    ]
    lines += [f"- `{name if '::' in name else 'aten::' + name}`" for name in names]
    lines += [
        "",
        "# Library calls",
        "",
        "Made from `csrc/aten/library_table.cc`. The core's queue calls libtorch's kernel for the",
        "CPU (LAPACK and FFT with it) on the core's own memory, in order and without copies;",
        "`torch_neuronx.get_library_ops()` counts the calls. An op that has a lowering too is",
        "computed by the library only where the lowering does not take the arguments.",
    ]
    family = ""
    for name, of in _C.compiler.library_ops():
        if of != family:
            lines += ["", f"## {of[0].upper()}{of[1:]}", ""]
            family = of
        lines.append(f"- `aten::{name}`")
    return "\n".join(lines) + "\n"


def main() -> None:
    DOCS.mkdir(exist_ok=True)
    (DOCS / "environment.md").write_text(environment())
    (DOCS / "ops.md").write_text(ops())


if __name__ == "__main__":
    main()
