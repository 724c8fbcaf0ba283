"""The main job: a FLUX.2-klein pipeline makes an image on "neuron", eager, then compiled.

    python examples/klein.py [--size tiny|small|real] [--steps 4] [--output output.png]

The pipeline's directory is built with random weights if it is absent (no network needed). So the
picture shows noise: that every part of a real pipeline runs, not what a trained model paints.
"""

from __future__ import annotations

import argparse
import functools
import time
from pathlib import Path

import torch
from diffusers import Flux2KleinPipeline
from diffusers.utils import logging
from make_klein import build_pipeline
from PIL.Image import Image

import torch_neuronx  # for the counters at the end; the device needs no import


def pipeline_directory(parent: Path, size: str) -> Path:
    """The directory of the pipeline of this size, built if it is absent."""
    directory = parent / size
    if not directory.exists():
        print(f"building a {size} FLUX.2-klein pipeline with random weights in {directory}")
        unfinished = parent / f"{size}.unfinished"
        build_pipeline(size).save_pretrained(unfinished)
        unfinished.rename(directory)
    return directory


def make_image(pipe: Flux2KleinPipeline, args: argparse.Namespace, name: str) -> Image:
    start = time.perf_counter()
    image = pipe(
        prompt=args.prompt,
        height=args.height,
        width=args.width,
        num_inference_steps=args.steps,
        generator=torch.Generator("cpu").manual_seed(0),
    ).images[0]
    print(f"{name}: {time.perf_counter() - start:.2f} s")
    return image


def report() -> None:
    metrics = torch_neuronx.metrics.get_compilation_metrics()
    print(
        f"kernels: {metrics['compilations']} compiled in {metrics['compile_seconds']:.1f} s, "
        f"{metrics['disk_hits']} loaded from the cache"
    )
    fallbacks = torch_neuronx.get_fallback_ops()
    print(f"ops that fell back to the CPU: {', '.join(fallbacks) if fallbacks else 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description='Makes an image on "neuron".')
    parser.add_argument("--size", default="tiny", choices=["tiny", "small", "real"])
    parser.add_argument("--model", default="demo-model", help="where the pipelines are kept")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--height", type=int, default=256)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument(
        "--prompt", default="A small cactus with a happy face in the Sahara desert."
    )
    parser.add_argument("--output", default="output.png")
    args = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()

    directory = pipeline_directory(Path(args.model), args.size)
    pipe = Flux2KleinPipeline.from_pretrained(directory, dtype=torch.bfloat16)
    pipe.to("neuron")
    pipe.set_progress_bar_config(disable=True)

    make = functools.partial(make_image, pipe, args)
    make("eager, first image")
    eager = make("eager, second image")
    # Whole graphs: the transformer is compiled for this size at its first call.
    pipe.transformer.compile(backend="neuron", fullgraph=True, dynamic=False)
    make("compiled, first image")
    compiled = make("compiled, second image")
    eager.save(args.output)
    output = Path(args.output)
    compiled_output = output.with_name(f"{output.stem}_compiled{output.suffix}")
    compiled.save(compiled_output)
    report()
    print(f"wrote {args.output} and {compiled_output}")


if __name__ == "__main__":
    main()
