"""A FLUX.2-klein pipeline on "neuron" makes PyTorch CPU's image and compiles each kernel once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import torch_neuronx

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """size, guided -> directory of a pipeline."""
    from make_klein import build_pipeline

    made = {}

    def get(size: str, guided: bool) -> Path:
        if (size, guided) not in made:
            path = tmp_path_factory.mktemp(f"klein-{size}-{guided}")
            build_pipeline(size, is_distilled=not guided).save_pretrained(path)
            made[size, guided] = path
        return made[size, guided]

    return get


def load(directory: Path, dtype: torch.dtype, device: str):
    from diffusers import Flux2KleinPipeline

    pipe = Flux2KleinPipeline.from_pretrained(directory, dtype=dtype)
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(device)


def paint(pipe, prompt="A small cactus with a happy face", seed=0, steps=4, size=64) -> np.ndarray:
    image = pipe(
        prompt=prompt,
        height=size,
        width=size,
        num_inference_steps=steps,
        generator=torch.Generator("cpu").manual_seed(seed),
    ).images[0]
    return np.asarray(image).astype(int)


@pytest.mark.parametrize("guided", [False, True], ids=["distilled", "guided"])
@pytest.mark.parametrize("size", ["tiny", "small"])
def test_image(directories, size, guided):
    directory = directories(size, guided)
    torch_neuronx.clear_op_tracking()
    truth = paint(load(directory, torch.float32, "cpu"))
    device = paint(load(directory, torch.float32, "neuron"))
    assert abs(device - truth).max() <= 1
    cpu_error = abs(paint(load(directory, torch.bfloat16, "cpu")) - truth).mean()
    device_error = abs(paint(load(directory, torch.bfloat16, "neuron")) - truth).mean()
    assert device_error <= 1.25 * cpu_error
    assert torch_neuronx.get_fallback_ops() == []


def test_steady_state_compiles_nothing(directories):
    pipe = load(directories("tiny", False), torch.bfloat16, "neuron")
    paint(pipe)
    before = torch_neuronx.metrics.get_compilation_metrics()
    first = paint(pipe)
    paint(pipe, prompt="two dogs are dancing under the rain")
    paint(pipe, seed=7)
    paint(pipe, steps=2)
    paint(pipe, steps=5)
    after = torch_neuronx.metrics.get_compilation_metrics()
    assert after["compilations"] == before["compilations"]
    assert after["disk_hits"] == before["disk_hits"]
    assert (paint(pipe) == first).all()  # the same bits every time


SCRIPT = """
import json, sys
import torch
sys.path.insert(0, {root!r})
from tests.pipelines.test_klein import load, paint
import torch_neuronx
from pathlib import Path
pipe = load(Path({directory!r}), torch.bfloat16, "neuron")
paint(pipe)
print(json.dumps(torch_neuronx.metrics.get_compilation_metrics()))
"""


def test_compiled_once_for_every_process(directories, tmp_path):
    script = SCRIPT.format(root=str(ROOT), directory=str(directories("tiny", False)))
    env = {**os.environ, "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "neff")}

    def run():
        result = subprocess.run(
            [sys.executable, "-c", script], env=env, cwd=ROOT, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout.splitlines()[-1])

    first, second = run(), run()
    assert 0 < first["compilations"] <= 150
    assert second["compilations"] == 0
    assert second["disk_hits"] == first["compilations"]
    assert second["disk_rejected"] == 0
