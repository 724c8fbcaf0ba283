"""diffusers' TensorParallelConfig: transformers in memory, and the example from files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Ranks = Callable[..., list[str]]
ROOT = Path(__file__).resolve().parents[2]

MODELS = {
    "flux": """
model = diffusers.FluxTransformer2DModel(
    in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
    num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32,
    axes_dims_rope=(4, 4, 8))
inputs = dict(
    hidden_states=torch.randn(1, 16, 4), encoder_hidden_states=torch.randn(1, 8, 32),
    pooled_projections=torch.randn(1, 32), timestep=torch.tensor([0.5]),
    img_ids=torch.randint(0, 4, (16, 3)).float(), txt_ids=torch.zeros(8, 3))
""",
    "flux2": """
model = diffusers.Flux2Transformer2DModel(
    in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
    num_attention_heads=2, joint_attention_dim=32, timestep_guidance_channels=32,
    axes_dims_rope=(4, 4, 4, 4))
inputs = dict(
    hidden_states=torch.randn(1, 16, 4), encoder_hidden_states=torch.randn(1, 8, 32),
    timestep=torch.tensor([0.5]), guidance=torch.tensor([3.5]),
    img_ids=torch.randint(0, 4, (16, 4)).float(), txt_ids=torch.zeros(8, 4))
""",
    "qwen": """
model = diffusers.QwenImageTransformer2DModel(
    in_channels=16, out_channels=4, num_layers=1, attention_head_dim=16,
    num_attention_heads=2, joint_attention_dim=32, axes_dims_rope=(4, 6, 6))
inputs = dict(
    hidden_states=torch.randn(1, 16, 16), encoder_hidden_states=torch.randn(1, 8, 32),
    encoder_hidden_states_mask=torch.ones(1, 8, dtype=torch.bool),
    timestep=torch.tensor([0.5]), img_shapes=[[(1, 4, 4)]])
""",
}


@pytest.mark.parametrize("name", MODELS)
def test_enable_parallelism_of_a_model_in_memory(ranks: Ranks, name: str) -> None:
    """Eager and as one graph, against the whole model on the CPU."""
    ranks(
        "import diffusers\ntorch.manual_seed(0)\n"
        + MODELS[name]
        + """
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
model.eval().requires_grad_(False)
want = model(**inputs).sample
mesh = DeviceMesh("neuron", list(range(size)))
model.enable_parallelism(config=diffusers.TensorParallelConfig(mesh=mesh))
model.to("neuron")
assert any(isinstance(p, DTensor) for p in model.parameters())
moved = {k: v.to("neuron") if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
# f32 sums of two halves, through a few layers
torch.testing.assert_close(model(**moved).sample.cpu(), want, rtol=1e-3, atol=1e-5)
counters.clear()
model.compile(backend="neuron", fullgraph=True, dynamic=False)
torch.testing.assert_close(model(**moved).sample.cpu(), want, rtol=1e-3, atol=1e-5)
assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"], counters
""",
        timeout=180,
    )


def test_example_makes_the_single_device_image(ranks: Ranks, tmp_path: Path) -> None:
    """Streamed from files: compiled by the launcher, eager and whole by ranks that live already."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command += ["examples/tensor_parallel_neuron.py", "--size=tiny", "--height=64", "--width=64"]
    command += ["--steps=2", f"--model={tmp_path / 'model'}", f"--output={tmp_path / '0.png'}"]
    subprocess.run(
        [*command, "--prompt=A cactus", "--compile"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
        timeout=150,
    )
    ranks(
        f"""
import sys
from pathlib import Path
sys.path.insert(0, "examples")
import tensor_parallel_neuron as example
path = Path({str(tmp_path)!r})
directory = example.pipeline_directory(path / "model", "tiny")
pipe = example.load(directory)
image = example.generate(pipe, "A cactus", 64, 64, 2)
if rank == 0:
    image.save(path / "1.png")
    pipe = example.Flux2KleinPipeline.from_pretrained(directory, dtype=torch.bfloat16)
    example.generate(pipe.to("neuron"), "A cactus", 64, 64, 2).save(path / "single.png")
"""
    )
    single = np.asarray(Image.open(tmp_path / "single.png")).astype(int)
    for name in ("0.png", "1.png"):
        other = np.asarray(Image.open(tmp_path / name)).astype(int)
        # bf16 rounds the sums of two halves elsewhere: as far apart as two CPUs' bf16 images.
        assert abs(other - single).max() <= 12 and abs(other - single).mean() <= 1.25
