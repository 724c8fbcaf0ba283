"""get_dynamo_metrics, the backend's errors and its factory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torch_neuronx import neuron_dynamo_backend as backend


def test_a_record_per_graph(graphs: Callable[[], int]):
    torch.neuron.reset_dynamo_metrics()
    before = backend.get_model_name()

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 3.25 + 1).cumsum(0)

    fast = torch.compile(function, backend=backend.create_neuron_backend(model_name="recorded"))
    x = torch.ones(5, device="neuron")
    fast(x)
    fast(x)
    (record,) = torch.neuron.get_dynamo_metrics()
    backend.set_model_name(before)
    assert record["model_name"] == "recorded"
    assert record["graph_name"] == f"recorded_{record['graph_id']}"
    assert record["has_collectives"] is False
    assert record["graph_node_count"] == 6  # input, four operations, output
    assert record["torch_neuronx_fx_passes_us"] > 0 and record["torch_neuronx_lower_us"] > 0
    assert record["torch_neuronx_compile_us"] > 0  # a number that no other test's kernel has
    fast(torch.ones(7, device="neuron"))
    assert len(torch.neuron.get_dynamo_metrics()) == 2
    torch.neuron.reset_dynamo_metrics()
    assert torch.neuron.get_dynamo_metrics() == []


def test_unknown_options_are_refused_when_the_backend_is_made():
    with pytest.raises(ValueError, match="unknown option 'modell_name'"):
        backend.create_neuron_backend(modell_name="x")


def test_errors_of_the_backend(run_python: Callable[..., str]):
    out = run_python(
        """
        import torch
        from torch_neuronx.neuron_dynamo_backend import NEFFCompilationError, NEFFExecutionError
        torch._dynamo.config.suppress_errors = False
        try:
            torch.compile(lambda x: torch.poisson(x), backend="neuron")(
                torch.ones(3, device="neuron"))
        except Exception as error:
            print(isinstance(getattr(error, "inner_exception", error), NEFFCompilationError))
        try:
            torch.compile(lambda x: x + 1, backend="neuron")(torch.ones(3))
        except NEFFExecutionError as error:
            print("move it with .to('neuron')" in str(error))
        """,
        TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY="1",
    )
    assert out.splitlines() == ["True", "True"]


def test_rank(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RANK", raising=False)
    assert backend.get_rank() == 0
    monkeypatch.setenv("RANK", "3")
    assert backend.get_rank() == 3
