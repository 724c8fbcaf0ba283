"""``torch-neuronx doctor``: whether the device works here, and what to do if not."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import textwrap
from typing import Any

from torch_neuronx.cli import checks, terminal
from torch_neuronx.cli.checks import Finding

_MARKS = {"ok": ("ok", "green"), "warning": ("!!", "yellow"), "error": ("XX", "red")}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        help="check versions, CPU, memory and cache, and test the device",
        description="Checks the installation and tests the device in a process of its own; says "
        "what to do about each finding. Exit code 1 if the device does not work.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--no-self-test", action="store_true", help="leave out the test (seconds)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    findings: list[Finding] = []
    for check in checks.CHECKS:
        if check is checks.self_test and arguments.no_self_test:
            continue
        found = list(check())
        findings += found
        if not arguments.json:
            for finding in found:
                _show(finding)
            sys.stdout.flush()  # the next check may take seconds
        if any(finding.fatal for finding in found):
            break  # nothing else can be asked
    ok = all(finding.status != "error" for finding in findings)
    if arguments.json:
        rows = [dataclasses.asdict(finding) for finding in findings]
        json.dump({"ok": ok, "findings": rows}, sys.stdout, indent=2)
        print()
    else:
        warnings = sum(finding.status == "warning" for finding in findings)
        verdict = "the device works" if ok else "the device does not work here"
        print(
            terminal.paint(verdict, "green" if ok else "red")
            + (f"; {warnings} warnings" if warnings else "")
        )
    return 0 if ok else 1


def _show(finding: Finding) -> None:
    mark, colour = _MARKS[finding.status]
    print(
        f"{terminal.paint(mark, colour)}  {terminal.paint(f'{finding.name:15}', 'bold')} ", end=""
    )
    print(finding.detail)
    if finding.advice:
        print(textwrap.indent(textwrap.fill(finding.advice, 80), " " * 20))
