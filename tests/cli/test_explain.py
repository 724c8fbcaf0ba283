"""torch-neuronx explain SCRIPT: the script runs as python would run it, its graphs are told."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tests.cli.conftest import Run

COMPILED = """
    import sys
    import torch

    def scaled(x):
        return torch.relu(x @ x) * 2

    compiled = torch.compile(scaled, backend="neuron")
    x = torch.ones(16, 16, device="neuron")
    for _ in range(int(sys.argv[1])):
        print("sum", compiled(x).sum().item())
"""


@pytest.fixture
def script(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "some script.py"
        path.write_text(textwrap.dedent(text))
        return path

    return write


def test_a_script_with_arguments(command: Run, script):
    out = command("explain", script(COMPILED), "3").stdout
    assert out.count("sum 8192.0") == 3
    report = out[out.rindex("sum 8192.0") :]
    assert "some script.py on" in report and "maximum" in report
    (gemm,) = [line for line in report.splitlines() if line.startswith("gemm")]
    assert gemm.split()[1] == "3", "calls"


def test_numbers_and_page(command: Run, script, tmp_path: Path):
    page, numbers = tmp_path / "report.html", tmp_path / "report.json"
    out = command("explain", "--html", page, "--json", numbers, script(COMPILED), "1").stdout
    assert out == "sum 8192.0\n", "the report is in the files"
    data = json.loads(numbers.read_text())
    assert data["flops"] == 2 * 16**3 + 2 * 16**2 and data["first_seconds"] is None
    assert all(kernel["seconds"] > 0 for kernel in data["kernels"]), "one run is enough"
    # Generating code takes tens of milliseconds, which is no kernel's time.
    assert data["kernel_seconds"] < data["seconds"] / 10
    assert "<svg" in page.read_text()


def test_the_exit_code_is_the_scripts(command: Run, script):
    ending = textwrap.dedent(COMPILED) + "sys.exit(7)"
    assert "gemm" in command("explain", script(ending), "1", code=7).stdout
    assert command("explain", script("import sys; sys.exit('no data')"), code=1).stderr == (
        "no data\n"
    )


def test_a_script_that_fails_is_reported_up_to_there(script, monkeypatch, capsys):
    from torch_neuronx.cli.main import main

    failing = textwrap.dedent(COMPILED) + "raise ValueError('too small')"
    assert main(["explain", str(script(failing)), "1"]) == 1
    out, err = capsys.readouterr()
    assert "gemm" in out and "ValueError: too small" in err


def test_nothing_compiled(command: Run, script):
    error = command("explain", script("print('hello')"), code=1).stderr
    assert error.startswith("error: nothing of some script.py ran compiled for neuron: compile it")


def test_no_script_no_folder(command: Run, script, tmp_path: Path):
    error = command("explain", "nowhere.py", code=1).stderr
    assert error == "error: there is no script 'nowhere.py'\n"
    lost = tmp_path / "nowhere" / "report.html"
    error = command("explain", "--html", lost, script(COMPILED), "1", code=1).stderr
    assert error == f"error: there is no folder '{lost.parent}' for '{lost}'\n"
