"""A second process finds compiled graphs in torch's cache and machine code in the NEFF cache."""

from __future__ import annotations

import json

import pytest

MODEL = """
import json, torch, torch_neuronx
from torch._dynamo.utils import counters

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
model.to("neuron")
x = torch.linspace(-1, 1, 32, device="neuron").view(4, 8)

@torch.compile(backend="neuron", fullgraph=True)
def forward(x):
    {body}

y = forward(x)
if {backward}:
    y.sum().backward()
    y = torch.cat([y.flatten(), *[p.grad.flatten() for p in model.parameters()]])
torch.neuron.synchronize()
"""
REPORT = """
print(json.dumps({
    "torch": dict(counters["aot_autograd"]),
    "graphs": dict(counters["neuron"]),
    "kernels": torch_neuronx.metrics.get_compilation_metrics()["compilations"],
    "values": y.detach().float().cpu().flatten().tolist(),
}))
"""
BODIES = {
    "inference": ("with torch.no_grad(): return model(x).softmax(-1)", False, 1),
    "training": ("return model(x).softmax(-1) * model(x)", True, 2),
    "dropout": ("return torch.nn.functional.dropout(model(x), 0.5)", True, 2),
    "several results": (
        "with torch.no_grad(): return torch.cat([model(x).sort(-1)[0], model(x).cumsum(-1)])",
        False,
        1,
    ),
}


@pytest.fixture
def run(run_python, tmp_path):
    def run(body, backward, code=REPORT, **env):
        caches = {
            "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "neff"),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch"),
        }
        text = MODEL.format(body=body, backward=backward) + code
        return json.loads(run_python(text, **(caches | env)).splitlines()[-1])

    return run


@pytest.mark.parametrize("name", BODIES)
def test_second_process_builds_nothing(run, name):
    body, backward, graphs = BODIES[name]
    first, second = run(body, backward), run(body, backward)
    assert first["graphs"] == {"graphs_compiled": graphs}
    assert first["torch"]["autograd_cache_saved"] == 1
    assert second["graphs"] == {"graphs_loaded": graphs}
    assert second["torch"]["autograd_cache_hit"] == 1
    assert second["kernels"] == 0
    assert second["values"] == first["values"]


def test_another_setting_is_another_entry(run):
    body, backward, _ = BODIES["inference"]
    run(body, backward)
    other = run(body, backward, TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION="0")
    assert other["graphs"] == {"graphs_compiled": 1}


def test_a_damaged_entry_is_compiled_again(run, tmp_path):
    body, backward, _ = BODIES["inference"]
    first = run(body, backward)
    entries = [p for p in (tmp_path / "torch" / "aotautograd").rglob("*") if p.is_file()]
    assert entries
    for path in entries:
        path.write_bytes(path.read_bytes()[:-20])
    again = run(body, backward)
    assert again["graphs"] == {"graphs_compiled": 1}
    assert again["values"] == first["values"]


SAVE = """
artifacts, info = torch.compiler.save_cache_artifacts()
open({path!r}, "wb").write(artifacts)
kernels = torch_neuronx.metrics.get_compilation_metrics()["compilations"]
print(json.dumps({{"kernels": kernels, **{{k: len(v) for k, v in info.artifacts.items()}}}}))
"""
LOAD = """
import torch
torch.compiler.load_cache_artifacts(open({path!r}, "rb").read())
"""


def test_portable_archive_carries_machine_code(run, run_python, tmp_path):
    """torch.compiler.save_cache_artifacts and load_cache_artifacts ("MegaCache")."""
    body, backward, _ = BODIES["training"]
    path = str(tmp_path / "archive")
    saved = run(body, backward, SAVE.format(path=path))
    assert saved["aot_autograd"] == 1
    assert saved["neuron_neff"] >= 2
    caches = {
        "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "other-neff"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "other-torch"),
    }
    text = LOAD.format(path=path) + MODEL.format(body=body, backward=backward) + REPORT
    report = json.loads(run_python(text, **caches).splitlines()[-1])
    assert report["graphs"] == {"graphs_loaded": 2}
    # What is left are the kernels of eager mode, which the archive does not hold.
    assert report["kernels"] == saved["kernels"] - saved["neuron_neff"]


def test_damaged_archive_file_is_refused():
    from torch_neuronx import _C

    key = "0" * 31 + "1"
    content = _C.neff.serialize(key, "somebody's", {"code": b"1"})
    with pytest.raises(ValueError, match="is of key"):
        _C.neff.import_file("0" * 31 + "2", content)
    with pytest.raises(ValueError):
        _C.neff.import_file(key, content[:-1])
