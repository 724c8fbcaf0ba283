"""Compiled mode against PyTorch CPU eager, inductor and OpenVINO, alternating in one run.

python -m benchmarks.compile [--models tiny_dit,small_unet] [--dtypes float32] [--rounds 7]
python -m benchmarks.compile --compile-time    (each in a fresh process: cold, then warm)
python -m benchmarks.compile --memory          (each in a fresh process)
python -m benchmarks.compile --errors          (against the model in float64)
--threads 1 and --isa avx2 limit every contender alike.

The first compiled call of each contender in the alternating run is printed too, but only
--compile-time says what a compile costs: there caches are empty at first, then those that the
process before left.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.first_call import TORCH_STAGES, compile_table, measure, memory_table
from benchmarks.measure import alternate, machine, table
from benchmarks.models import INFERENCE, TRAINING, Inputs
from torch_neuronx import _C

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


def prepare(
    model: str, contender: str, dtype: torch.dtype, rounded_to: str | None = None
) -> Callable[[], Any]:
    """``rounded_to``: a dtype to which weights and inputs are rounded first."""
    module, inputs = (INFERENCE | TRAINING)[model]()
    device = "neuron" if contender.startswith("neuron") else "cpu"
    if rounded_to is not None:
        module = module.to(getattr(torch, rounded_to))
        inputs = {k: cast(v, device, getattr(torch, rounded_to)) for k, v in inputs.items()}
    module = module.to(dtype)
    inputs = {k: cast(v, device, dtype) for k, v in inputs.items()}
    return (inference if model in INFERENCE else training)(contender, module, inputs)


def contenders(model: str, wanted: list[str]) -> list[str]:
    have = importlib.util.find_spec("openvino") is not None
    return [c for c in wanted if not (c.startswith("openvino") and (not have or model in TRAINING))]


def run_times(args: argparse.Namespace) -> None:
    for dtype_name in args.dtypes:
        dtype = getattr(torch, dtype_name)
        for model in args.models:
            runs = {}
            for name in contenders(model, args.contenders):
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
            print(table("model", [(f"{model}, {dtype_name}", results)], 1e-3, "ms"))
            if "neuron" in results:
                print(f"{share_of_peak(model, dtype, results['neuron'].least)}\n", flush=True)


def prepare_torch_stage(model: str, backend: str, dtype: torch.dtype) -> Callable[[], Any]:
    """The model on the device, compiled by a backend of torch's that generates nothing."""
    module, inputs = (INFERENCE | TRAINING)[model]()
    inputs = {k: cast(v, "neuron", dtype) for k, v in inputs.items()}
    run = compiled(module.to("neuron", dtype), backend)
    grad = torch.enable_grad() if model in TRAINING else torch.no_grad()

    def call() -> None:
        with grad:
            out = run(**inputs)
            if model in TRAINING:
                out.backward()
        torch.neuron.synchronize()

    return call


def share_of_peak(model: str, dtype: torch.dtype, seconds: float) -> str:
    """What the model's matrix products, attention and convolutions need at the measured peak."""
    from torch.utils.flop_counter import FlopCounterMode

    module, inputs = (INFERENCE | TRAINING)[model]()
    with FlopCounterMode(display=False) as counter:
        out = module(**inputs)
        if model in TRAINING:
            out.backward()
    flops = counter.get_total_flops()
    peak = _C.kernels.measure_peak({"float32": "f32", "bfloat16": "bf16"}[str(dtype)[6:]], 0.5)
    return (
        f"{flops / 1e9:.1f} GFLOP; peak {peak / 1e9:.0f} GFLOP/s, so at least "
        f"{flops / peak * 1e3:.2f} ms: neuron reaches {flops / peak / seconds:.0%} of the peak"
    )


def first_call(model: str, contender: str, dtype: torch.dtype) -> None:
    """In a process of its own: what :func:`benchmarks.first_call.measure` finds, as JSON."""
    stage = TORCH_STAGES.get(contender)
    if stage is not None:
        result = measure(lambda: prepare_torch_stage(model, stage, dtype))
    else:
        result = measure(lambda: prepare(model, contender, dtype))
    print(json.dumps(result))


def errors(args: argparse.Namespace) -> None:
    """Prints each contender's distance from the model in float64, as a share of its norm."""
    print("| model | " + " | ".join(args.contenders) + " |")
    print("|---" * (1 + len(args.contenders)) + "|")
    for dtype in args.dtypes:
        for model in args.models:
            if model in TRAINING:
                continue
            reference = prepare(model, "cpu eager", torch.float64, rounded_to=dtype)().double()
            cells = [f"{model}, {dtype}"]
            for name in args.contenders:
                torch._dynamo.reset()
                if name not in contenders(model, args.contenders) or name == "openvino native":
                    cells.append("")
                    continue
                try:
                    out = prepare(model, name, getattr(torch, dtype))().double().cpu()
                except Exception as error:
                    if name.startswith("neuron"):
                        raise
                    print(f"{model}, {dtype}: {name} fails: {str(error).splitlines()[0]}")
                    cells.append("fails")
                    continue
                cells.append(f"{((out - reference).norm() / reference.norm()).item():.2e}")
            print("| " + " | ".join(cells) + " |", flush=True)


def limit_to(isa: str) -> None:
    """Starts this process again with every contender limited to an instruction set.

    Each library reads its variable when it is loaded. OpenVINO has none.
    """
    variables = {
        "TORCH_NEURONX_HOST_ISA": isa,
        "ATEN_CPU_CAPABILITY": isa,
        "ONEDNN_MAX_CPU_ISA": isa.upper(),
        "MKL_ENABLE_INSTRUCTIONS": isa.upper(),
    }
    if any(os.environ.get(name) != value for name, value in variables.items()):
        arguments = [sys.executable, "-m", "benchmarks.compile", *sys.argv[1:]]
        os.execve(sys.executable, arguments, os.environ | variables)
    torch._inductor.config.cpp.simdlen = {"avx2": 256}[isa]


def parse() -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=names, default=[*INFERENCE, *TRAINING])
    parser.add_argument("--contenders", type=names, default=list(CONTENDERS))
    parser.add_argument("--dtypes", type=names, default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as torch takes")
    parser.add_argument("--isa", choices=["avx2"], help="limit every contender (not OpenVINO)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--compile-time", action="store_true", help="first calls instead")
    what.add_argument("--memory", action="store_true", help="peak memory instead")
    what.add_argument("--errors", action="store_true", help="distance from float64 instead")
    what.add_argument("--first-call", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    args = parse()
    if args.isa:
        limit_to(args.isa)
        args.contenders = [name for name in args.contenders if not name.startswith("openvino")]
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.first_call:
        (model,), (contender,), (dtype,) = args.models, args.contenders, args.dtypes
        return first_call(model, contender, getattr(torch, dtype))
    print(machine(), "\n")
    if args.compile_time:
        return compile_table(args.models, args.dtypes)
    if args.memory:
        return memory_table(args.models, args.dtypes, args.contenders)
    return errors(args) if args.errors else run_times(args)


if __name__ == "__main__":
    main()
