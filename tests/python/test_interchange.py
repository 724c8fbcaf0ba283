"""DLPack, and tensors of layouts that the device does not have."""

from __future__ import annotations

import numpy as np
import pytest
import torch


def test_a_tensor_shares_its_memory_with_one_made_of_it():
    x = torch.arange(6.0, device="neuron:1").reshape(2, 3)
    for y in (
        torch.from_dlpack(x),
        torch.from_dlpack(x.T).T,
        torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)),
    ):
        assert y.device == x.device and y.data_ptr() == x.data_ptr()
        assert torch.equal(y.cpu(), x.cpu())
    y[0, 0] = 7
    assert x[0, 0].item() == 7
    copy = torch.from_dlpack(x, copy=True)
    assert copy.is_neuron and copy.data_ptr() != x.data_ptr()
    assert x.__dlpack_device__() == (torch.utils.dlpack.DLDeviceType.kDLExtDev, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8, torch.complex64])
def test_numpy_gets_a_copy_on_the_cpu(dtype: torch.dtype):
    x = torch.arange(6, device="neuron").to(dtype).reshape(2, 3)
    found = np.from_dlpack(x, device="cpu")
    np.testing.assert_array_equal(found, x.cpu().numpy())
    found = torch.from_dlpack(x, device="cpu")
    assert found.device.type == "cpu" and torch.equal(found, x.cpu())


def test_tensors_come_from_other_libraries():
    there = np.arange(6.0).reshape(2, 3)
    for found in (torch.from_dlpack(there, device="neuron:1"), torch.asarray(there).to("neuron:1")):
        assert found.device == torch.device("neuron:1")
        np.testing.assert_array_equal(found.cpu().numpy(), there)


def test_what_dlpack_cannot_do_is_said():
    x = torch.ones(3, device="neuron")
    with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\)"):
        np.asarray(x)
    with pytest.raises((RuntimeError, BufferError), match="Unsupported device"):
        np.from_dlpack(x)
    with pytest.raises((ValueError, BufferError), match="without a? ?copy"):
        torch.from_dlpack(x, device="cpu", copy=False)
    with pytest.raises(BufferError, match="without a copy"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="only to its own device"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="require gradient"):
        x.requires_grad_().__dlpack__(dl_device=(1, 0))


OTHER_LAYOUTS = {
    "to_sparse": (lambda x: x.to_sparse(), "no sparse tensors.*to_dense"),
    "new coo": (
        lambda x: torch.sparse_coo_tensor([[0]], [1.0], (2,), device="neuron"),
        "no sparse tensors.*to_dense",
    ),
    "move coo": (lambda x: torch.eye(3).to_sparse().to("neuron"), "no sparse tensors"),
    "use csr": (lambda x: torch.eye(2).to_sparse_csr().to("neuron") @ x, "no sparse tensors"),
    "empty": (
        lambda x: torch.empty(2, layout=torch.sparse_coo, device="neuron"),
        "no sparse tensors",
    ),
    "mixed": (lambda x: torch.mm(torch.eye(2).to_sparse(), x), "no sparse tensors"),
    "gradient": (
        lambda x: (
            torch.nn.functional.embedding(x[0].long(), x.requires_grad_(), sparse=True)
            .sum()
            .backward()
        ),
        "no sparse tensors",
    ),
    "quantized": (
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        "no quantized tensors.*dequantize",
    ),
    "nested": (
        lambda x: str(torch.nested.nested_tensor([x, x])),
        "no nested strided tensors.*jagged",
    ),
    "mkldnn": (lambda x: x.to_mkldnn(), "mkldnn layout: neuron"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's about betas, ours about fallbacks
@pytest.mark.parametrize("case", OTHER_LAYOUTS)
def test_other_layouts_are_refused_with_advice(case: str):
    call, message = OTHER_LAYOUTS[case]
    with pytest.raises(NotImplementedError, match=message):
        call(torch.ones(2, 2, device="neuron"))


def test_jagged_tensors_work():
    parts = [torch.ones(2, 3, device="neuron"), torch.zeros(1, 3, device="neuron")]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    assert (nested + 1).values().cpu().tolist() == [[2.0] * 3, [2.0] * 3, [1.0] * 3]
