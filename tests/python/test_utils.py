"""torch_neuronx.utils, nki_op and wrap_nki."""

from __future__ import annotations

import pytest
import torch

import torch_neuronx
from torch_neuronx import utils


def test_settings(run_python, monkeypatch: pytest.MonkeyPatch):
    code = """
        from torch_neuronx import utils
        print(utils.is_sync_mode_enabled(), utils.is_neff_cache_disabled())
    """
    assert run_python(code) == "False False"
    on = {"NEURON_LAUNCH_BLOCKING": "1", "TORCH_NEURONX_NEFF_DISABLE_CACHE": "1"}
    assert run_python(code, **on) == "True True"
    assert utils.use_mlir_aten_ops() and utils.is_stablehlo_enabled()
    assert utils.get_platform_target() == "host"
    assert (utils.get_lnc_setting(), utils.get_logical_neuron_cores()) == (1, "1")
    assert utils.get_worker_multiplier() == 1
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    with pytest.raises(ValueError, match="NEURON_LOGICAL_NC_CONFIG='2'"):
        utils.get_lnc_setting()


def test_registered_ops():
    names = utils.get_neuron_registered_ops()
    assert names == sorted(names)
    assert {"aten::add.Tensor", "aten::mm", "aten::_softmax"} <= set(names)
    short = utils.get_neuron_registered_ops(as_sorted=False, keep_variant=False)
    assert isinstance(short, set) and "aten::add" in short and "aten::add.Tensor" not in short


def test_trees():
    tree = {"a": [torch.ones(2), 3], "b": (torch.zeros(1), None)}
    there = utils.move_pytree_to_neuron(tree, 2)
    assert there["a"][0].device == there["b"][0].device == torch.device("neuron:2")
    assert there["a"][1] == 3 and there["b"][1] is None and isinstance(there["b"], tuple)
    assert utils.move_pytree_to_neuron(tree)["a"][0].device == torch.device("neuron:0")
    back = utils.move_pytree_to_cpu(there)
    assert torch.equal(back["a"][0], torch.ones(2)) and back["b"][0].device.type == "cpu"


def test_mxfp8_is_no_tensor():
    block = utils.MXFP8(torch.ones(2), torch.ones(1), torch.float8_e4m3fn)
    with pytest.raises(TypeError):
        torch.relu(block)


def test_nki_op():
    @torch_neuronx.nki_op("neuron_test::scale_and_add")
    def scale_and_add(x: torch.Tensor, y: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor + y

    x = torch.arange(4.0, device="neuron")
    expected = torch.arange(4.0) * 2 + torch.arange(4.0)
    assert torch.equal(scale_and_add(x, x, 2.0).cpu(), expected)
    fast = torch.compile(lambda x: scale_and_add(x, x, 2.0).neg(), backend="neuron", fullgraph=True)
    assert torch.equal(fast(x).cpu(), -expected)

    def fill(x: torch.Tensor) -> None:
        x.fill_(3)

    torch_neuronx.nki_op("neuron_test::fill", fill, mutates_args={"x"})(x)
    assert x.cpu().tolist() == [3.0] * 4


def test_nki_kernels_are_refused():
    def kernel(x: torch.Tensor) -> torch.Tensor:
        return x

    with pytest.raises(NotImplementedError, match="'host' cannot run the NKI kernel kernel"):
        torch_neuronx.wrap_nki(kernel)[2, 2](torch.ones(1, device="neuron"))
