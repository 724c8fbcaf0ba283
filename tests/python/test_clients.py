"""Libraries that know no "neuron": safetensors, accelerate; and pinned host memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch


@pytest.fixture
def file(tmp_path: Path) -> Path:
    from safetensors.torch import save_file

    path = tmp_path / "f.safetensors"
    save_file({"a": torch.arange(12.0).reshape(3, 4), "b": torch.ones(2)}, path)
    return path


@pytest.mark.parametrize("device", ["neuron", "neuron:1", torch.device("neuron", 1)])
def test_safetensors_loads_to_the_device(file: Path, device: str | torch.device):
    from safetensors import safe_open
    from safetensors.torch import load_file

    loaded = load_file(file, device=device)
    assert loaded["a"].device == torch.device("neuron", torch.device(device).index or 0)
    assert torch.equal(loaded["a"].cpu(), torch.arange(12.0).reshape(3, 4))
    with safe_open(file, framework="pt", device=device) as opened:
        assert sorted(opened.keys()) == ["a", "b"]
        assert opened.get_tensor("b").device.type == "neuron"
        part = opened.get_slice("a")
        assert part.get_shape() == [3, 4]
        assert torch.equal(part[1:].cpu(), torch.arange(4.0, 12.0).reshape(2, 4))


def test_safetensors_elsewhere_is_as_it_was(file: Path):
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    assert load_file(file)["a"].device.type == "cpu"
    assert load_file(file, device=0)["a"].device == torch.device("neuron:0")
    with pytest.raises((SafetensorError, RuntimeError)):
        safe_open(file, framework="pt", device="nowhere")


def test_accelerate_knows_the_memory_of_the_device():
    from accelerate.utils import get_max_memory, infer_auto_device_map

    found = get_max_memory()
    count = torch.neuron.device_count()
    assert list(found) == [*range(count), "cpu"]
    assert found[0] == torch.neuron.mem_get_info(0)[0]
    assert infer_auto_device_map(torch.nn.Linear(4, 4)) == {"": 0}
    assert get_max_memory({"cpu": 100}) == {"cpu": 100}


def test_accelerate_moves_a_model_to_a_numbered_device():
    from accelerate import dispatch_model

    model = dispatch_model(torch.nn.Linear(4, 4), {"": 1})
    assert model.weight.device == torch.device("neuron:1")


def test_empty_host_cache():
    """torch calls the device's allocator of pinned memory, which must exist."""
    pinned = torch.ones(1000).pin_memory()
    before = torch.neuron.memory_allocated()
    torch.accelerator.empty_host_cache()
    assert pinned.is_pinned() and pinned.sum().item() == 1000
    assert torch.neuron.memory_allocated() == before
