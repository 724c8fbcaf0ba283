"""Compiled mode against PyTorch CPU eager, inductor and OpenVINO, alternating in one run.

python -m benchmarks.compile [--models tiny_dit,small_unet] [--dtypes float32] [--rounds 7]
python -m benchmarks.compile --compile-time    (each in a fresh process: cold, then warm)

The first compiled call of each contender in the alternating run is printed too, but only
--compile-time says what a compile costs: there caches are empty at first, then those that the
process before left.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.measure import alternate, machine, table
from benchmarks.models import INFERENCE, TRAINING, Inputs

CONTENDERS = ("neuron", "neuron eager", "cpu eager", "inductor", "openvino", "openvino native")


def cast(value: Any, device: str, dtype: torch.dtype) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device, dtype if value.is_floating_point() else None)


def compiled(module: torch.nn.Module, backend: str) -> torch.nn.Module:
    if backend == "openvino":
        import openvino.torch  # noqa: F401  (registers the backend)
    return torch.compile(module, backend=backend, dynamic=False)  # type: ignore[return-value]


def inference(name: str, module: torch.nn.Module, inputs: Inputs) -> Callable[[], Any]:
    module = module.to("neuron") if name.startswith("neuron") else module
    if name == "openvino native":
        import openvino

        names = [k for k, v in inputs.items() if isinstance(v, torch.Tensor)]
        example = {k: inputs[k] for k in names}
        native = openvino.compile_model(
            openvino.convert_model(module, example_input=example), "CPU"
        )
        arrays = [inputs[k].numpy() for k in names]
        return lambda: native(arrays)
    run = module if name.endswith("eager") else compiled(module, name)

    def call() -> Any:
        with torch.no_grad():
            out = run(**inputs)
        if name.startswith("neuron"):
            torch.neuron.synchronize()
        return out

    return call


def training(name: str, module: torch.nn.Module, inputs: Inputs) -> Callable[[], Any]:
    module = (module.to("neuron") if name.startswith("neuron") else module).train()
    run = module if name.endswith("eager") else compiled(module, name)

    def step() -> Any:
        loss = run(**inputs)
        loss.backward()
        module.zero_grad(set_to_none=True)
        if name.startswith("neuron"):
            torch.neuron.synchronize()
        return loss

    return step


def prepare(model: str, contender: str, dtype: torch.dtype) -> Callable[[], Any]:
    module, inputs = (INFERENCE | TRAINING)[model]()
    module = copy.deepcopy(module).to(dtype)
    device = "neuron" if contender.startswith("neuron") else "cpu"
    inputs = {k: cast(v, device, dtype) for k, v in inputs.items()}
    return (inference if model in INFERENCE else training)(contender, module, inputs)


def contenders(model: str, wanted: list[str]) -> list[str]:
    have = importlib.util.find_spec("openvino") is not None
    return [c for c in wanted if not (c.startswith("openvino") and (not have or model in TRAINING))]


def run_times(args: argparse.Namespace) -> None:
    for dtype_name in args.dtypes.split(","):
        dtype = getattr(torch, dtype_name)
        for model in args.models.split(","):
            runs = {}
            for name in contenders(model, args.contenders.split(",")):
                torch._dynamo.reset()
                start = time.perf_counter()
                try:
                    call = prepare(model, name, dtype)
                    call()
                except Exception as error:  # a peer that cannot run it is left out, visibly
                    if name.startswith("neuron"):
                        raise
                    print(f"{model}, {dtype_name}: {name} fails: {str(error).splitlines()[0]}")
                    continue
                print(f"{model}, {dtype_name}: {name} ready in {time.perf_counter() - start:.1f} s")
                runs[name] = call
            results = alternate(runs, args.rounds)
            print(
                table("model", [(f"{model}, {dtype_name}", results)], 1e-3, "ms"), "\n", flush=True
            )


def first_call(model: str, contender: str, dtype: str) -> None:
    """In a process of its own: seconds of the first call, as JSON."""
    if contender in ("dynamo", "aot_eager"):
        module, inputs = (INFERENCE | TRAINING)[model]()
        inputs = {k: cast(v, "neuron", getattr(torch, dtype)) for k, v in inputs.items()}
        module = module.to("neuron", getattr(torch, dtype))
        run = compiled(module, {"dynamo": "eager"}.get(contender, contender))
        grad = torch.enable_grad() if model in TRAINING else torch.no_grad()

        def call() -> None:
            with grad:
                out = run(**inputs)
                if model in TRAINING:
                    out.backward()
            torch.neuron.synchronize()
    else:
        call = prepare(model, contender, getattr(torch, dtype))
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    start = time.perf_counter()
    call()
    print(json.dumps({"first": first, "second": time.perf_counter() - start}))


def compile_times(args: argparse.Namespace) -> None:
    names = ["dynamo", "aot_eager", "neuron", "inductor"]
    print("| model | " + " | ".join(f"{n} cold, s | {n} warm, s" for n in names) + " |")
    print("|---" * (1 + 2 * len(names)) + "|")
    for dtype in args.dtypes.split(","):
        for model in args.models.split(","):
            cells = [f"{model}, {dtype}"]
            for name in names:
                with tempfile.TemporaryDirectory() as caches:
                    env = os.environ | {
                        "TORCH_NEURONX_NEFF_CACHE_DIR": caches + "/neff",
                        "TORCHINDUCTOR_CACHE_DIR": caches + "/inductor",
                    }
                    for _ in range(2):
                        child = subprocess.run(
                            [sys.executable, "-m", "benchmarks.compile", "--first-call"]
                            + ["--models", model, "--contenders", name, "--dtypes", dtype],
                            env=env,
                            capture_output=True,
                            text=True,
                        )
                        if child.returncode != 0:
                            raise RuntimeError(f"{model}, {name}:\n{child.stderr}")
                        result = json.loads(child.stdout.splitlines()[-1])
                        cells.append(f"{result['first'] - result['second']:.2f}")
            print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(INFERENCE | TRAINING))
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as torch takes")
    parser.add_argument("--compile-time", action="store_true")
    parser.add_argument("--first-call", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.first_call:
        return first_call(args.models, args.contenders, args.dtypes)
    print(machine(), "\n")
    if args.compile_time:
        return compile_times(args)
    return run_times(args)


if __name__ == "__main__":
    main()
