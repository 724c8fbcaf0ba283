"""Errors name what is wrong, where it was called, and come out at the next synchronising call."""

from __future__ import annotations

import pytest
import torch


def test_index_out_of_range_is_raised_at_the_next_synchronisation():
    table = torch.randn(10, 4, device="neuron")
    index = torch.tensor([1, 12], device="neuron")
    out = torch.nn.functional.embedding(index, table)  # returns: the device runs behind
    with pytest.raises(IndexError) as error:
        out.cpu()
    text = str(error.value)
    assert "index 12 is out of bounds for dimension with size 10" in text
    assert "aten::embedding" in text
    assert "f32[10,4]" in text and "i64[2]" in text
    assert "test_errors.py" in text and "test_index_out_of_range" in text
    # It is raised once; the device goes on.
    assert torch.ones(2, device="neuron").sum().item() == 2


def test_index_out_of_range_in_gather_and_scatter():
    x = torch.zeros(3, 3, device="neuron")
    bad = torch.full((1, 3), 5, device="neuron")
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension with size 3"):
        x.gather(0, bad).cpu()
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        x.scatter(0, bad, 1.0).cpu()


def test_integer_division_by_zero():
    x = torch.tensor([4, 2], device="neuron")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        torch.div(x, torch.tensor([2, 0], device="neuron"), rounding_mode="floor").cpu()


def test_shapes_and_dtypes_are_checked_at_once():
    with pytest.raises(RuntimeError, match="broadcast|must match the size"):
        torch.ones(3, device="neuron") + torch.ones(4, device="neuron")
    with pytest.raises(RuntimeError, match="can't be cast|not possible"):
        torch.ones(3, device="neuron", dtype=torch.int64).add_(1.5)
    with pytest.raises(RuntimeError, match="unsupported operation: more than one element"):
        torch.ones(1, device="neuron").expand(3).add_(1)


def test_overlapping_memory_is_refused():
    x = torch.arange(6.0, device="neuron")
    with pytest.raises(RuntimeError, match="unsupported operation"):
        torch.add(x[:-1], 1, out=x[1:])


def test_tensors_of_two_devices_are_named():
    with pytest.raises(RuntimeError, match="same device.*cpu"):
        torch.ones(3, device="neuron") + torch.ones(3)
    if torch.neuron.device_count() > 1:
        with pytest.raises(RuntimeError, match="neuron:0 and neuron:1"):
            torch.ones(3, device="neuron:0") + torch.ones(3, device="neuron:1")


def test_blocking_launch_raises_where_the_op_is_called(run_python):
    out = run_python(
        """
        import torch
        table = torch.zeros(2, 2, device="neuron")
        try:
            torch.nn.functional.embedding(torch.tensor([7], device="neuron"), table)
        except IndexError as error:
            print("index 7" in str(error))
        """,
        NEURON_LAUNCH_BLOCKING="1",
    )
    assert out.strip() == "True"


def test_fallback_warns_once_with_the_call_site_and_can_be_forbidden(run_python):
    code = """
        import warnings, torch, torch_neuronx
        x = torch.eye(3, device="neuron")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(3):
                torch.ops.aten._add_relu(x, x)
        texts = [str(w.message) for w in seen if "_add_relu" in str(w.message)]
        print(len(texts), "<string>" in texts[0])
        print(torch_neuronx.get_fallback_ops())
        """
    out = run_python(code).splitlines()
    assert out[0] == "1 True"
    assert "aten::_add_relu" in out[1]
    forbidden = run_python(
        """
        import torch
        try:
            torch.ops.aten._add_relu(*[torch.ones(3, device="neuron")] * 2)
        except NotImplementedError as error:
            print("_add_relu" in str(error) and ".cpu()" in str(error))
        """,
        NEURON_FALLBACK_ENABLED="0",
    )
    assert forbidden.strip() == "True"
