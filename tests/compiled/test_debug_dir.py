"""TORCH_NEURONX_DEBUG_DIR keeps the stages of a compile, one folder per graph."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import torch
f = torch.compile(lambda x, y: (x @ y * 2 + 1).softmax(-1), backend="neuron",
                  options={"model_name": "toy"})
f(torch.ones(8, 8, device="neuron"), torch.ones(8, 8, device="neuron")).cpu()
"""


def run(directory, cache):
    return subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ
        | {
            "TORCH_NEURONX_DEBUG_DIR": str(directory),
            "TORCH_NEURONX_NEFF_CACHE_DIR": str(cache),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "torch"),
        },
        capture_output=True,
        text=True,
    )


def test_stages_of_a_graph(tmp_path):
    done = run(tmp_path / "debug", tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "debug" / "toy_0"
    stages = {f.name: f.read_text() for f in folder.iterdir()}
    assert sorted(stages) == [
        "0_fx.py",
        "1_lowered.ir",
        "2_simplified.ir",
        "3_reductions_split.ir",
        "4_plan.txt",
    ]
    assert "aten.mm.default" in stages["0_fx.py"]
    assert "dot_general" in stages["1_lowered.ir"] and "dot_general" in stages["2_simplified.ir"]
    plan = stages["4_plan.txt"].splitlines()
    assert plan[0].startswith("3 operands, ")
    assert plan[1] == "library gemm; operands %0 %1 scratch"
    assert plan[2].startswith("kernel toy_0, 8 items: ") and "reduce_maximum" in plan[2]
    # Of each kernel: loops, LLVM IR, assembly.
    kinds = {f.suffix for f in (tmp_path / "debug").iterdir() if f.is_file()}
    assert kinds == {".loop", ".ll", ".s"}


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = run(blocked, tmp_path / "cache")
    assert done.returncode != 0
    assert "TORCH_NEURONX_DEBUG_DIR must name a directory" in done.stderr
