"""The command's arguments and exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import torch_neuronx
from torch_neuronx.cli import bench, cache, doctor, explain

_EPILOG = """\
exit codes: 0 all is well, 1 something is wrong (and was said), 2 wrong usage.
Colours are shown on a terminal only; NO_COLOR=1 turns them off.
"""


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        prog="torch-neuronx",
        description="Tools for the PyTorch device 'neuron'.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    out.add_argument(
        "--version", action="version", version=f"torch-neuronx {torch_neuronx.__version__}"
    )
    commands = out.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (doctor, cache, bench, explain):
        module.add_parser(commands)
    return out


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        code = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # as when the output goes into `head`
        # Python flushes standard output once more at its end; that must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
