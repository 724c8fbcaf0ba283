"""torch_neuronx.explain: its counts are those of the shapes, its forms say the same."""

import json

import pytest
import torch
from torch import nn

import torch_neuronx


@pytest.fixture(scope="module")
def report():
    model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU()).to("neuron")
    with torch.no_grad():
        return torch_neuronx.explain(model)(torch.randn(32, 64, device="neuron"))


def test_a_matrix_product_is_counted_from_its_shape(report):
    (gemm,) = [k for k in report.kernels if k.name == "gemm"]
    assert gemm.engine
    assert gemm.bytes_read == 4 * (32 * 64 + 64 * 128 + 128)
    assert gemm.bytes_written == 4 * 32 * 128


def test_a_fused_kernel_reads_and_writes_each_element_once(report):
    (norm,) = [k for k in report.kernels if "rsqrt" in k.fused]
    assert not norm.engine
    assert norm.bytes_read == 4 * (32 * 64 + 2 * 64)
    assert norm.bytes_written == 4 * 32 * 64


def test_transcendentals_are_counted_apart(report):
    (gelu,) = [k for k in report.kernels if "erf" in k.fused]
    assert gelu.transcendentals == 32 * 128


def test_an_epilogue_is_counted_with_its_product(report):
    (gemm,) = [k for k in report.kernels if k.name == "gemm"]
    assert "erf" in gemm.fused
    per_element = sum(gemm.fused.count(op) for op in ("multiply", "add"))
    assert per_element > 0
    assert gemm.flops == (2 * 64 + per_element) * 32 * 128


def test_every_step_was_timed(report):
    assert report.kernels and all(k.seconds > 0 and k.calls == 1 for k in report.kernels)
    assert report.seconds >= report.kernel_seconds > 0
    assert report.machine.bytes_per_second > 0 and report.machine.peak_flops["f32"] > 0


def test_memory_is_inputs_outputs_and_temporaries(report):
    inputs = 4 * (32 * 64 + 2 * 64 + 64 * 128 + 128)
    assert report.peak_bytes == inputs + 4 * 32 * 128 + report.scratch_bytes


def test_the_text_has_every_kernel_and_what_it_fused(report):
    text = str(report)
    for kernel in report.kernels:
        assert kernel.name in text and kernel.fused in text


def test_the_data_is_json(report):
    data = json.loads(json.dumps(report.to_dict()))
    assert data["flops"] == report.flops
    assert [k["bound"] in ("memory", "compute") for k in data["kernels"]] == [True] * len(
        report.kernels
    )


def test_the_page_needs_no_other_file(report, tmp_path):
    path = tmp_path / "report.html"
    text = report.to_html(path)
    assert path.read_text(encoding="utf-8") == text
    assert text.count("<circle") == len([k for k in report.kernels if k.flops])
    assert "src=" not in text and "href=" not in text and "http" not in text


def test_a_compiled_function_is_used_as_it_is():
    compiled = torch.compile(lambda x: torch.relu(x) + 1, backend="neuron")
    x = torch.randn(8, device="neuron")
    compiled(x)
    report = torch_neuronx.explain(compiled)(x)
    assert [k.flops for k in report.kernels] == [16]


def test_graph_breaks_are_told():
    def function(x):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    report = torch_neuronx.explain(function)(torch.randn(8, device="neuron"))
    assert report.graphs == 2
    assert sum(report.graph_breaks.values()) == 1


def test_backward_is_part_of_it():
    weight = torch.randn(16, 8, device="neuron", requires_grad=True)

    def step(x):
        (x @ weight).square().sum().backward()

    report = torch_neuronx.explain(step)(torch.randn(4, 16, device="neuron"))
    assert [k.flops for k in report.kernels if k.name == "gemm"].count(2 * 4 * 16 * 8) == 2


def test_what_is_not_compiled_is_an_error():
    with pytest.raises(RuntimeError, match="nothing of .* ran compiled"):
        torch_neuronx.explain(lambda: 3)()
    with pytest.raises(TypeError, match="takes a function or a module, got int"):
        torch_neuronx.explain(3)
