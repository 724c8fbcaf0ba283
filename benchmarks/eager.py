"""Eager mode against PyTorch CPU eager: tiny Klein pipeline, its transformer, single calls.

python -m benchmarks.eager [--rounds 15]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.measure import Result, alternate, machine, table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))


def pipelines(dtype: torch.dtype, directory: str):
    from diffusers import Flux2KleinPipeline

    out = {}
    for device in ("neuron", "cpu"):
        pipe = Flux2KleinPipeline.from_pretrained(directory, dtype=dtype)
        pipe.set_progress_bar_config(disable=True)
        out[device] = pipe.to(device)
    return out


def image(pipe):
    return lambda: pipe(
        prompt="A small cactus with a happy face",
        height=64,
        width=64,
        num_inference_steps=4,
        generator=torch.Generator("cpu").manual_seed(0),
    )


def transformer_step(pipe):
    """One call of the transformer with the shapes of a 64 x 64 image and a prompt of 512 tokens."""
    captured = {}

    def capture(module, args, kwargs):
        captured.update(kwargs)

    hook = pipe.transformer.register_forward_pre_hook(capture, with_kwargs=True)
    image(pipe)()
    hook.remove()

    def step():
        with torch.no_grad():
            pipe.transformer(**captured)
        torch.neuron.synchronize()

    return step


def caller_cost(rounds: int) -> list[tuple[str, dict[str, Result]]]:
    """What the Python caller pays for a tiny op, without waiting for it."""
    x = {d: torch.randn(4, 4, device=d) for d in ("neuron", "cpu")}
    rows = []
    for label, op in (
        ("x + y", lambda a: a + a),
        ("x * 2", lambda a: a * 2),
        ("x.t()", lambda a: a.t()),
    ):
        best = {}
        for _ in range(rounds):
            for device, a in x.items():
                start = time.perf_counter()
                for _ in range(2000):
                    op(a)
                elapsed = (time.perf_counter() - start) / 2000
                torch.neuron.synchronize()
                best.setdefault(device, []).append(elapsed)
        rows.append((label, {d: Result(min(t), sorted(t)[len(t) // 2]) for d, t in best.items()}))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    from diffusers.utils import logging
    from make_klein import build_pipeline

    logging.set_verbosity_error()
    print(machine(), "\n")
    print(table("caller's cost of a 4 x 4 op", caller_cost(args.rounds), 1e-6, "us"), "\n")
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        build_pipeline("tiny").save_pretrained(directory)
        for dtype in (torch.bfloat16, torch.float32):
            pipes = pipelines(dtype, directory)
            name = str(dtype).removeprefix("torch.")
            rows.append(
                (
                    f"tiny pipeline, {name}",
                    alternate({d: image(p) for d, p in pipes.items()}, args.rounds),
                )
            )
            steps = {d: transformer_step(p) for d, p in pipes.items()}
            rows.append((f"tiny transformer step, {name}", alternate(steps, args.rounds, calls=4)))
    print(table("model", rows, 1e-3, "ms"))


if __name__ == "__main__":
    main()
