"""Tensor parallelism: the ranks of a host share the layers of a FLUX.2-klein transformer.

    torchrun --nproc_per_node=8 examples/tensor_parallel_neuron.py [--size small] [--compile]

Each rank is a process with a NeuronCore of its own and reads only its slices of the transformer's
weights; the text encoder and the VAE are whole on every rank. Rank 0 saves the image.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from diffusers import Flux2KleinPipeline, Flux2Transformer2DModel, TensorParallelConfig
from diffusers.utils import logging
from klein import pipeline_directory
from PIL import Image
from torch.distributed.device_mesh import DeviceMesh


def load(directory: Path) -> Flux2KleinPipeline:
    """The pipeline on this rank's core; with several ranks the transformer is shared."""
    device = torch.device("neuron", torch.neuron.current_device())
    parallel = {}
    if dist.get_world_size() > 1:
        mesh = DeviceMesh("neuron", list(range(dist.get_world_size())))
        parallel["parallel_config"] = TensorParallelConfig(mesh=mesh)
    transformer = Flux2Transformer2DModel.from_pretrained(
        directory, subfolder="transformer", dtype=torch.bfloat16, **parallel
    )
    pipe = Flux2KleinPipeline.from_pretrained(
        directory, transformer=transformer, dtype=torch.bfloat16
    )
    return pipe.to(device)


def generate(
    pipe: Flux2KleinPipeline, prompt: str, height: int, width: int, steps: int
) -> Image.Image:
    return pipe(
        prompt=prompt,
        height=height,
        width=width,
        num_inference_steps=steps,
        generator=torch.Generator().manual_seed(0),
    ).images[0]


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes an image with tensor parallelism.")
    # The heads must divide by the ranks: tiny has 4, small 8, real 24.
    parser.add_argument("--size", default="small", choices=["tiny", "small", "real"])
    parser.add_argument("--model", default="demo-model", help="where the pipelines are kept")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--height", type=int, default=256)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--prompt", default="A small cactus with a happy face in the Sahara.")
    parser.add_argument("--output", default="output.png")
    parser.add_argument(
        "--compile", action="store_true", help="the transformer as one graph, collectives inside"
    )
    args = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()

    dist.init_process_group("neuron")
    rank = dist.get_rank()
    if rank == 0:
        pipeline_directory(Path(args.model), args.size)
    dist.barrier(device_ids=[torch.neuron.current_device()])  # the others wait until it is built
    pipe = load(pipeline_directory(Path(args.model), args.size))
    pipe.set_progress_bar_config(disable=True)
    if args.compile:
        pipe.transformer.compile(backend="neuron", fullgraph=True, dynamic=False)

    start = time.perf_counter()
    image = generate(pipe, args.prompt, args.height, args.width, args.steps)
    if rank == 0:
        image.save(args.output)
        seconds = time.perf_counter() - start
        cpu = sum(os.times()[:2])
        print(
            f"{args.output}: {dist.get_world_size()} ranks, {seconds:.1f} s, {cpu:.1f} s CPU on "
            "rank 0"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
