"""torch-neuronx doctor and bench, the help, the entry point."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

import torch_neuronx
from tests.cli.conftest import Run, on_terminal

PATHS = [["doctor"], ["bench"], ["cache"], ["explain"]]
PATHS += [["cache", a] for a in ("ls", "show", "verify", "prune", "clear", "export", "import")]


def test_console_script():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="torch-neuronx")
    from torch_neuronx.cli.main import main

    assert script.load() is main


def test_version(command: Run):
    assert command("--version").stdout == f"torch-neuronx {torch_neuronx.__version__}\n"


def test_help_names_every_command_and_the_exit_codes(command: Run):
    out = command("--help").stdout
    assert all(name in out for name in ("doctor", "cache", "bench", "explain", "exit codes: 0"))


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_help(path: list[str], capsys: pytest.CaptureFixture[str]):
    from torch_neuronx.cli.main import main

    with pytest.raises(SystemExit) as end:
        main([*path, "--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert f"usage: torch-neuronx {' '.join(path)}" in out
    # Each option is explained: its line goes on, or the next one is indented below it.
    lines = out.splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("  -"):
            assert len(line.split("  ")) > 2 or below.startswith(" " * 10), line


@pytest.mark.parametrize("arguments", [[], ["frobnicate"], ["cache"], ["doctor", "--what"]])
def test_wrong_usage(command: Run, arguments: list[str]):
    assert "usage: torch-neuronx" in command(*arguments, code=2).stderr


def test_doctor(command: Run, tmp_path: Path):
    out = command("doctor", TORCH_NEURONX_NEFF_CACHE_DIR=str(tmp_path / "cache")).stdout
    assert "the device works" in out.splitlines()[-1]
    for part in ("torch.compile", "attention", "NeuronCores on", "0 executables"):
        assert part in out
    assert not (tmp_path / "cache").exists(), "the test has a cache of its own"


def findings(command: Run, code: int = 0, **env: str) -> dict[str, list[dict[str, str]]]:
    out: dict[str, list[dict[str, str]]] = {}
    done = command("doctor", "--json", "--no-self-test", code=code, **env)
    result = json.loads(done.stdout)
    assert result["ok"] is (code == 0)
    for finding in result["findings"]:
        out.setdefault(finding["name"], []).append(finding)
    return out


def of(found: list[dict[str, str]], status: str) -> list[str]:
    return [f["detail"] for f in found if f["status"] == status]


def test_doctor_about_variables(command: Run):
    found = findings(command, TORCH_NEURONX_NEF_CACHE_DIR="/x", NEURON_LAUNCH_BLOCKING="1")
    (unknown,) = [f for f in found["environment"] if f["status"] == "warning"]
    assert "TORCH_NEURONX_NEF_CACHE_DIR=/x has no effect" in unknown["detail"]
    assert "Did you mean TORCH_NEURONX_NEFF_CACHE_DIR?" in unknown["advice"]
    assert "NEURON_LAUNCH_BLOCKING=1" in of(found["environment"], "ok")
    (wrong,) = of(
        findings(command, code=1, NEURON_LAUNCH_BLOCKING="perhaps")["environment"], "error"
    )
    assert "NEURON_LAUNCH_BLOCKING='perhaps': expected 1 or 0" in wrong


def test_doctor_about_a_wrong_number_of_cores(command: Run):
    found = findings(command, code=1, NEURON_RT_VISIBLE_CORES="1-")
    assert "NEURON_RT_VISIBLE_CORES" in of(found["device"], "error")[0]


def test_doctor_about_the_instruction_set(command: Run):
    found = findings(command, TORCH_NEURONX_HOST_ISA="portable")
    assert "kernels: portable" in of(found["CPU"], "warning")[0]
    assert found["CPU"][0]["advice"].startswith("Unset TORCH_NEURONX_HOST_ISA")


def test_doctor_about_memory(command: Run):
    found = findings(command, TORCH_NEURONX_HOST_HBM_BYTES=str(1 << 50))
    assert "TORCH_NEURONX_HOST_HBM_BYTES=" in found["memory"][0]["advice"]
    found = findings(command, TORCH_NEURONX_HOST_HBM_BYTES=str(1 << 30))
    assert "1.0 GiB of HBM per core" in found["memory"][0]["detail"]


def test_doctor_about_the_cache(command: Run, tmp_path: Path):
    directory = tmp_path / "cache"
    directory.mkdir()
    directory.chmod(0o777)
    here = {"TORCH_NEURONX_NEFF_CACHE_DIR": str(directory)}
    assert "other users may write to it" in of(findings(command, **here)["cache"], "warning")[0]
    directory.chmod(0o700)
    path = directory / "ab" / "cd" / f"abcd{'0' * 28}.neff"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    (damaged,) = findings(command, **here)["cache"]
    assert "1 executables, 4 B; 1 damaged" in damaged["detail"]
    assert "cache verify --remove" in damaged["advice"]
    found = findings(command, TORCH_NEURONX_NEFF_DISABLE_CACHE="1", **here)
    assert "compiles everything again" in found["cache"][0]["detail"]


# Without capabilities root obeys the modes of files as everybody.
OBEY = """
import ctypes, os
if os.geteuid() == 0:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
    assert ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)()) == 0
"""


def test_doctor_about_a_read_only_cache(command: Run, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(OBEY)
    place = tmp_path / "place"
    place.mkdir(mode=0o500)
    env = {"TORCH_NEURONX_NEFF_CACHE_DIR": str(place / "cache"), "PYTHONPATH": str(tmp_path)}
    found = findings(command, **env)
    assert "cannot be written to" in of(found["cache"], "warning")[0]


# Imported by every new interpreter that finds it on its path.
BROKEN = """
import sys
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "torch_neuronx._C":
            raise ImportError("undefined symbol: c10_whatever")
sys.meta_path.insert(0, Broken())
"""


def test_a_broken_extension(command: Run, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(BROKEN)
    env = {"PYTHONPATH": str(tmp_path)}
    (package,) = findings(command, code=1, **env)["package"]
    assert "undefined symbol: c10_whatever" in package["detail"]
    assert "make build" in package["advice"]
    out = command("doctor", code=1, **env).stdout
    assert out.splitlines()[-1] == "the device does not work here"
    assert "c10_whatever" in command("cache", "ls", code=1, **env).stderr
    assert "c10_whatever" in command("bench", code=1, **env).stderr


CRASH = """
import sys
if sys.orig_argv[-1] == "torch_neuronx.cli.selftest":
    {code}
"""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGILL)",
            "its process was ended by SIGILL",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
        ("import os; os._exit(3)", "exit code 3"),
        (
            'print(\'{"matmul": "3e-1 from"}\'); import os; sys.stdout.flush(); os._exit(1)',
            "matmul",
        ),
    ],
)
def test_a_failing_self_test_is_a_finding(command: Run, tmp_path: Path, code: str, said: str):
    (tmp_path / "sitecustomize.py").write_text(CRASH.format(code=code))
    done = command("doctor", "--json", code=1, PYTHONPATH=str(tmp_path))
    (test,) = [f for f in json.loads(done.stdout)["findings"] if f["name"] == "self-test"]
    assert test["status"] == "error" and said in test["detail"] and test["advice"]


def test_self_test_can_fail(run_python):
    """A device that computes wrongly is found out."""
    out = run_python("""
        import torch
        from torch_neuronx.cli import selftest
        right = torch.Tensor.cpu
        torch.Tensor.cpu = lambda x: right(x) + 0.01
        print(selftest._matmul(), selftest._compiled(), sep="\\n")
    """)
    assert all("from the CPU's result" in line for line in out.splitlines())


def test_bench(command: Run):
    arguments = ["bench", "--seconds", "1", "-k", "transformer block, 512 tokens float32"]
    out = command(*arguments).stdout
    assert "CPU eager, ms" in out and "neuron compiled, ms" in out and "geometric mean" in out
    (times,) = json.loads(command(*arguments, "--json").stdout)["milliseconds"].values()
    assert set(times) == {"CPU eager", "neuron eager", "neuron compiled"}
    assert all(value > 0 for value in times.values())
    assert "no work's name has 'nothing'" in command("bench", "-k", "nothing", code=1).stderr


def test_colours_of_the_doctor():
    assert "\033[32m" in on_terminal("doctor", "--no-self-test")
