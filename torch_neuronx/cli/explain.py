"""``torch-neuronx explain``: what a script's compiled graphs do on this machine."""

from __future__ import annotations

import argparse
import json
import runpy
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch_neuronx.explanation import Report


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "explain",
        help="run a script and tell what its compiled graphs did",
        description="Runs a Python script as `python SCRIPT ARGS` would, measuring every step of "
        'the graphs that torch.compile(backend="neuron") made: kernels, what each fused, bytes '
        "moved, FLOPs, times, against the roofline of this machine. The script's own output goes "
        "where it always goes; the report comes after it. A script that ends with an error is "
        "reported up to there, and its exit code is kept.",
    )
    parser.add_argument("--html", metavar="FILE", help="write the report as one HTML file instead")
    parser.add_argument("--json", metavar="FILE", help="write the report's numbers as JSON instead")
    parser.add_argument("script", metavar="SCRIPT", help="a Python file")
    parser.add_argument(
        "arguments", metavar="ARGS", nargs=argparse.REMAINDER, help="the script's own arguments"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from torch_neuronx.explanation import Watch  # needs the extension, which `doctor` may not have

    script = Path(arguments.script)
    if not script.is_file():
        raise RuntimeError(f"there is no script '{script}'")
    for output in (arguments.html, arguments.json):
        if output is not None and not Path(output).resolve().parent.is_dir():
            raise RuntimeError(f"there is no folder '{Path(output).parent}' for '{output}'")
    with Watch(script.name) as watch:
        start = time.perf_counter()
        code = _run_script(script, arguments.arguments)
        torch.neuron.synchronize()
        try:
            report = watch.report(None, time.perf_counter() - start)
        except RuntimeError:
            if code != 0:  # it failed before, and said so
                return code
            raise
    _write(report, arguments)
    return code


def _run_script(script: Path, arguments: list[str]) -> int:
    """As ``python SCRIPT ARGS``: the script's exit code, after its error was shown."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except Exception:
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        sys.argv, sys.path[:] = argv, path
    return 0


def _write(report: Report, arguments: argparse.Namespace) -> None:
    if arguments.html is not None:
        report.to_html(arguments.html)
    if arguments.json is not None:
        Path(arguments.json).write_text(json.dumps(report.to_dict(), indent=2), encoding="utf-8")
    if arguments.html is None and arguments.json is None:
        print(report)
