"""What ``torch-neuronx doctor`` looks at."""

from __future__ import annotations

import difflib
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

import torch_neuronx
from torch_neuronx.cli import entries, terminal

_CLIENTS = ("diffusers", "transformers", "accelerate", "safetensors")
_VERIFY_SECONDS = 2.0


@dataclass
class Finding:
    """``status`` is "ok", "warning" or "error"; ``advice`` says what to do about it."""

    name: str
    status: str
    detail: str
    advice: str = ""
    fatal: bool = False  # the checks after this one cannot be made


def versions() -> Iterator[Finding]:
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    text = f"torch-neuronx {torch_neuronx.__version__}, torch {torch.__version__}, {python}"
    error = torch_neuronx._load_error
    if error is not None:
        yield Finding(
            "package",
            "error",
            f"{text}; the extension cannot be loaded: {type(error).__name__}: {error}",
            f"Install torch {torch_neuronx._TORCH_VERSION} and build torch-neuronx again "
            "(make build). For the whole traceback: "
            'python -c "import torch; from torch_neuronx import _C"',
            fatal=True,
        )
        return
    yield Finding("package", "ok", text)
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        yield Finding(
            "autoload",
            "warning",
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0: `import torch` does not load the device",
            "Unset it, or write `import torch_neuronx` before the first use of the device and "
            "before diffusers, transformers and accelerate are imported.",
        )
    found = []
    for name in _CLIENTS:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    yield Finding("clients", "ok", ", ".join(found) or "none of " + ", ".join(_CLIENTS))


def environment() -> Iterator[Finding]:
    """Each variable of the device that is set: whether it exists and can be understood."""
    device = torch_neuronx._extension().device
    table = {row[0]: row for row in device.env_table()}
    prefixes = ("NEURON_", "TORCH_NEURONX_")
    named = sorted(name for name in os.environ if name.startswith(prefixes))
    for name in named:
        value = os.environ[name]
        if name not in table:
            close = difflib.get_close_matches(name, table, 1)
            hint = f"Did you mean {close[0]}? " if close else ""
            yield Finding(
                "environment",
                "warning",
                f"{name}={value} has no effect: there is no such variable",
                f"{hint}docs/environment.md lists them all.",
            )
            continue
        try:
            if table[name][1] == "Bool":
                device.env_bool(name)
            elif table[name][1] == "Int":
                int(value)
        except (ValueError, RuntimeError) as error:
            yield Finding("environment", "error", f"{name}={value}: {error}", table[name][3])
            continue
        yield Finding("environment", "ok", f"{name}={value}")
    if not named:
        yield Finding("environment", "ok", "no variable of the device is set")


def cpu() -> Iterator[Finding]:
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        pass
    try:
        properties = torch.neuron.get_device_properties(0)
    except (RuntimeError, ValueError) as error:
        advice = "Correct the variable that the message names."
        yield Finding("device", "error", str(error), advice, fatal=True)
        return
    isa = properties.instruction_set
    wanted = os.environ.get("TORCH_NEURONX_HOST_ISA", "")
    if isa == "portable":
        advice = (
            "Unset TORCH_NEURONX_HOST_ISA to use what the CPU has."
            if wanted
            else "Expect little speed: the fast kernels need AVX2, FMA and F16C."
        )
        yield Finding("CPU", "warning", f"{model}; kernels: {isa}", advice)
    else:
        yield Finding("CPU", "ok", f"{model}; kernels: {isa}")
    cpus, threads = len(os.sched_getaffinity(0)), properties.num_threads
    quota = _cpu_quota()
    text = f"{torch.neuron.device_count()} NeuronCores on {threads} threads, {cpus} CPUs"
    allowed = min(cpus, quota) if quota else cpus
    if threads > allowed + 0.99:
        yield Finding(
            "cores",
            "warning",
            f"{text}, of which this process may use {allowed:.1f}",
            f"Set TORCH_NEURONX_HOST_THREADS={max(1, int(allowed))}: threads that wait for a CPU "
            "make the others wait.",
        )
    else:
        yield Finding("cores", "ok", text)


def _cpu_quota() -> float | None:
    """CPUs that the control group grants; None without a limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def memory() -> Iterator[Finding]:
    hbm = torch.neuron.get_device_properties(0).total_memory
    total, available = _memory_info()
    text = f"{terminal.size(hbm)} of HBM per core; the machine has {terminal.size(total)}, "
    text += f"{terminal.size(available)} available"
    if hbm > total:
        yield Finding(
            "memory",
            "warning",
            text,
            "A core may promise more memory than there is; the system then ends the process "
            "instead of torch.OutOfMemoryError. Set "
            f"TORCH_NEURONX_HOST_HBM_BYTES={total * 3 // 4}.",
        )
    elif available < 1 << 30:
        yield Finding("memory", "warning", text, "Close other programs: models need more.")
    else:
        yield Finding("memory", "ok", text)


def _memory_info() -> tuple[int, int]:
    """(total, available) bytes of this machine, or of the control group if that is less."""
    rows = dict(
        line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line
    )
    total, available = (int(rows[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    try:
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return total, available
    return min(total, limit), min(available, max(0, limit - used))


def cache() -> Iterator[Finding]:
    if torch_neuronx._extension().device.env_bool("TORCH_NEURONX_NEFF_DISABLE_CACHE"):
        yield Finding(
            "cache",
            "warning",
            "TORCH_NEURONX_NEFF_DISABLE_CACHE is set: each process compiles everything again",
            "Unset it unless you are looking for an error of the cache.",
        )
        return
    directory = entries.default_directory()
    why = entries.why_unsafe(directory)
    if why:
        yield Finding(
            "cache",
            "warning",
            f"{directory} is not used: {why}",
            "Set TORCH_NEURONX_NEFF_CACHE_DIR to a directory of your own, or each process compiles "
            "everything again.",
        )
        return
    place = next(p for p in [directory, *directory.absolute().parents] if p.exists())
    if not os.access(place, os.W_OK | os.X_OK):
        yield Finding(
            "cache",
            "warning",
            f"{directory} cannot be written to",
            "Make it writable (chmod u+wx), or set TORCH_NEURONX_NEFF_CACHE_DIR.",
        )
    yield from _cache_contents(directory)
    free = shutil.disk_usage(place).free
    if free < 64 << 20:
        yield Finding(
            "cache",
            "warning",
            f"only {terminal.size(free)} are free on the disk of {directory}",
            "Free some space (torch-neuronx cache prune --max-size 100M): what cannot be stored is "
            "compiled again by the next process.",
        )


def _cache_contents(directory: Path) -> Iterator[Finding]:
    files = list(entries.paths(directory))
    total = sum(path.lstat().st_size for path in files if path.exists())
    deadline = time.monotonic() + _VERIFY_SECONDS
    read = []
    for path in files:
        if time.monotonic() > deadline:
            break
        entry = entries.read(path)
        if entry is not None:
            read.append(entry)
    text = f"{directory}: {len(files)} executables, {terminal.size(total)}"
    if len(read) < len(files):
        text += f" ({len(read)} of them checked)"
    damaged = sum(bool(entry.problem) for entry in read)
    if damaged:
        yield Finding(
            "cache",
            "warning",
            f"{text}; {damaged} damaged",
            "They are never executed. See them: torch-neuronx cache verify; remove them: "
            "torch-neuronx cache verify --remove. Should it happen again, check the disk.",
        )
        return
    foreign = sum(not entry.usable for entry in read)
    if foreign > len(read) // 2 and foreign > 100:
        yield Finding(
            "cache",
            "warning",
            f"{text}; {foreign} of another version of the compiler or another CPU",
            "Remove them if no other installation uses them: torch-neuronx cache prune --unusable",
        )
        return
    yield Finding("cache", "ok", text)


def self_test() -> Iterator[Finding]:
    """In a process of its own, with an empty cache, so that a crash is a finding too."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torch-neuronx-doctor-") as directory:
        variables = {
            **os.environ,
            "TORCH_NEURONX_NEFF_CACHE_DIR": directory,
            "TORCH_NEURONX_NEFF_DISABLE_CACHE": "0",
        }
        try:
            done = subprocess.run(
                [sys.executable, "-m", "torch_neuronx.cli.selftest"],
                capture_output=True,
                text=True,
                timeout=300,
                env=variables,
            )
        except subprocess.TimeoutExpired:
            yield Finding("self-test", "error", "it did not end within 300 seconds", _REPORT)
            return
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        advice = (
            "The CPU refused an instruction, as under an emulator that promises more than it has: "
            "set TORCH_NEURONX_HOST_ISA=avx2 or portable."
            if name == "SIGILL"
            else _REPORT
        )
        yield Finding("self-test", "error", f"its process was ended by {name}", advice)
        return
    try:
        results = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        yield Finding("self-test", "error", f"exit code {done.returncode}: {last}", _REPORT)
        return
    failed = {name: why for name, why in results.items() if why}
    for name, why in failed.items():
        yield Finding("self-test", "error", f"{name}: {why}", _REPORT)
    if not failed:
        elapsed = time.monotonic() - start
        yield Finding("self-test", "ok", f"{', '.join(results)} (in {elapsed:.0f} s)")


_REPORT = (
    "Try TORCH_NEURONX_HOST_ISA=portable: if that works, the kernels for this CPU are at fault. "
    "Please report it with the output of `torch-neuronx doctor --json`."
)

CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    versions,
    environment,
    cpu,
    memory,
    cache,
    self_test,
)
