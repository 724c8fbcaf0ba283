"""Optimizer steps, gradient scaling and clipping: native, and those of PyTorch CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.testing._internal.common_methods_invocations import (
    foreach_binary_op_db,
    foreach_other_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
)

import torch_neuronx
from tests.aten.test_opinfo import to_device

SHAPES = [(5, 7), (33,), (), (2, 3, 4), (0,)]
VARIANTS = [
    ("Adam", {}),
    ("Adam", {"weight_decay": 0.1, "amsgrad": True}),
    ("AdamW", {"weight_decay": 0.1}),
    ("AdamW", {"maximize": True, "betas": (0.5, 0.9), "eps": 1e-3}),
    ("AdamW", {"amsgrad": True}),
    ("SGD", {}),
    ("SGD", {"weight_decay": 0.1, "maximize": True}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"momentum": 0.8, "dampening": 0.3}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1}),
]
FORMS = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def parameters(device, dtype):
    torch.manual_seed(0)
    made = [torch.randn(shape) for shape in SHAPES]
    made.append(torch.randn(2, 4, 3, 5).to(memory_format=torch.channels_last))
    made.append(torch.randn(6, 5).t())
    return [torch.nn.Parameter(x.to(device, dtype)) for x in made]


def steps(name, options, device, dtype, count=4):
    params = parameters(device, dtype)
    optimizer = getattr(torch.optim, name)(params, lr=1e-2, **options)
    for step in range(count):
        for number, param in enumerate(params):
            wave = torch.sin(torch.arange(param.numel()) * (number + 1.7) + step)
            # In the parameter's layout: the CPU's fused kernels look at memory only.
            grad = torch.empty_like(param, device="cpu", dtype=torch.float32, requires_grad=False)
            param.grad = grad.copy_(wave.reshape(param.shape)).to(device, dtype)
        optimizer.step()
    states = [
        value
        for param in params
        for key, value in sorted(optimizer.state[param].items())
        if isinstance(value, torch.Tensor)
    ]
    return params, states


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_steps_match_cpu(name, options, form):
    if name == "Adagrad" and form == "fused":
        # torch.optim.Adagrad takes fused=True for CPU parameters only: the op is tested below.
        form = "foreach"
    truth = steps(name, options, "cpu", torch.float64)
    torch_neuronx.clear_op_tracking()
    actual = steps(name, {**options, **FORMS[form]}, "neuron", torch.float32)
    assert torch_neuronx.get_fallback_ops() == []
    for got, want in zip(actual, truth, strict=True):
        for a, e in zip(got, want, strict=True):
            # Four steps of a few roundings each.
            torch.testing.assert_close(a.cpu().double(), e.double(), rtol=5e-6, atol=5e-6)
    own = {
        n for n in torch_neuronx.get_executed_ops() if n.startswith(("neuron::adam", "neuron::sgd"))
    }
    assert bool(own) == (form == "fused")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(("name", "options"), VARIANTS[2:3] + VARIANTS[8:9], ids=str)
def test_fused_steps_of_other_dtypes(name, options, dtype):
    torch_neuronx.clear_op_tracking()
    got, _ = steps(name, {**options, "fused": True}, "neuron", dtype)
    want, _ = steps(name, options, "cpu", torch.float64)
    assert torch_neuronx.get_fallback_ops() == []
    for a, e in zip(got, want, strict=True):
        assert a.dtype == dtype
        # Parameter, gradient and state are rounded once in each of the steps.
        eps = max(torch.finfo(dtype).eps, 1e-10)
        torch.testing.assert_close(a.cpu().double(), e.double(), rtol=4 * eps, atol=4 * eps)


def test_fused_learning_rate_as_tensor():
    for device_of_rate in ("cpu", "neuron"):
        rate = torch.tensor(3e-2, device=device_of_rate)
        params = parameters("neuron", torch.float32)
        twins = parameters("cpu", torch.float32)
        for param in [*params, *twins]:
            param.grad = torch.ones_like(param)
        torch.optim.AdamW(params, lr=rate, fused=True).step()
        torch.optim.AdamW(twins, lr=3e-2).step()
        for param, twin in zip(params, twins, strict=True):
            torch.testing.assert_close(param.detach().cpu(), twin.detach(), rtol=1e-6, atol=1e-6)


def fused_arguments(device):
    torch.manual_seed(0)
    lists = [[torch.rand(4, 5).to(device), torch.rand(3).to(device)] for _ in range(5)]
    return lists, [torch.full((), 3.0, device=device) for _ in range(2)]


@pytest.mark.parametrize("found", [0.0, 1.0])
@pytest.mark.parametrize("op", ["_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"])
def test_fused_with_scaled_gradients(op, found):
    torch_neuronx.clear_op_tracking()
    results = []
    for device in ("cpu", "neuron"):
        (param, grad, first, second, third), step = fused_arguments(device)
        scaling = {
            "grad_scale": torch.tensor(4.0, device=device),
            "found_inf": torch.tensor(found, device=device),
        }
        common = {"lr": 0.1, "weight_decay": 0.2, "maximize": False, **scaling}
        adam = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": True}
        sgd = {"momentum": 0.9, "dampening": 0.1, "nesterov": False, "is_first_step": False}
        adagrad = {"lr_decay": 0.1, "eps": 1e-8}
        call = getattr(torch, op)
        if op == "_fused_sgd_":
            call(param, grad, first, **common, **sgd)
        elif op == "_fused_adagrad_":
            call(param, grad, first, step, **common, **adagrad)
        else:
            call(param, grad, first, second, third, step, **common, **adam)
        results.append([*param, *first, *second, *third])
    for e, a in zip(*results, strict=True):
        torch.testing.assert_close(a.cpu(), e, rtol=1e-6, atol=1e-6)
    assert torch_neuronx.get_fallback_ops() == []


def test_fused_lists_of_other_lengths_are_refused():
    (param, grad, first, second, third), step = fused_arguments("neuron")
    with pytest.raises(RuntimeError, match="as many gradients as parameters"):
        torch._fused_adam_(
            param, grad[:1], first, second, third, step, lr=0.1, beta1=0.9, beta2=0.99,
            weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bad", [None, float("inf"), float("nan"), float("-inf")])
def test_unscaling_finds_what_is_not_finite(dtype, bad):
    torch_neuronx.clear_op_tracking()
    tensors = [torch.arange(12.0).reshape(3, 4).t().to(dtype), torch.ones((), dtype=dtype)]
    tensors.append(torch.full((1000,), 3.0, dtype=dtype))
    tensors.append(torch.empty(0, dtype=dtype))
    if bad is not None:
        tensors[2][777] = bad
    moved = [to_device(x) for x in tensors]
    inverse = torch.tensor(0.25)
    found, on_device = torch.zeros(1), torch.zeros(1, device="neuron")
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, inverse)
    torch._amp_foreach_non_finite_check_and_unscale_(moved, on_device, inverse.to("neuron"))
    assert on_device.item() == found.item() == (0.0 if bad is None else 1.0)
    for a, e in zip(moved, tensors, strict=True):
        torch.testing.assert_close(a.cpu(), e, rtol=0, atol=0, equal_nan=True)
    assert torch_neuronx.get_fallback_ops() == []


def test_scale_grows_and_shrinks_as_on_cpu():
    cases = [(0.0, 1, 65536.0), (0.0, 0, 8.0), (1.0, 1, 8.0), (0.0, 1, 3e38), (2.0, 0, 1e-3)]
    for found, tracker, scale in cases:
        outcome = []
        for device in ("cpu", "neuron"):
            current = torch.full((1,), scale, device=device)
            growth = torch.full((1,), tracker, dtype=torch.int32, device=device)
            inf = torch.full((1,), found, device=device)
            torch._amp_update_scale_(current, growth, inf, 2.0, 0.5, 2)
            outcome.append((current.item(), growth.item()))
        assert outcome[0] == outcome[1]


def test_a_scaler_skips_the_step_that_overflows():
    model = torch.nn.Linear(4, 3)
    models = {"cpu": copy.deepcopy(model), "neuron": model.to("neuron")}
    x = torch.randn(8, 4)
    for fused in (False, True):
        scales = {}
        for device, module in models.items():
            optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, fused=fused)
            scaler = torch.amp.GradScaler(device, init_scale=2.0**10, growth_interval=2)
            seen = []
            for step in range(5):
                optimizer.zero_grad()
                data = x.to(device) * (float("inf") if step == 2 else 1.0)
                before = module.weight.detach().clone()
                scaler.scale(module(data).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
                assert torch.equal(before, module.weight.detach()) == (step == 2)
                seen.append(scaler.get_scale())
            scales[device] = seen
        assert scales["cpu"] == scales["neuron"]
        torch.testing.assert_close(
            models["neuron"].weight.detach().cpu(), models["cpu"].weight.detach()
        )


@pytest.mark.parametrize("norm", [2.0, 1.0, float("inf")])
@pytest.mark.parametrize("foreach", [True, False])
def test_clipping(norm, foreach):
    torch_neuronx.clear_op_tracking()
    params, twins = parameters("neuron", torch.float32)[:4], parameters("cpu", torch.float32)[:4]
    for number, (param, twin) in enumerate(zip(params, twins, strict=True)):
        twin.grad = torch.cos(torch.arange(twin.numel()) + number).reshape(twin.shape)
        param.grad = twin.grad.to("neuron")
    options = {"norm_type": norm, "foreach": foreach}
    total = torch.nn.utils.clip_grad_norm_(params, 0.7, **options)
    expected = torch.nn.utils.clip_grad_norm_(twins, 0.7, **options)
    torch.testing.assert_close(total.cpu(), expected)
    torch.nn.utils.clip_grad_value_(params, 0.05, foreach=foreach)
    torch.nn.utils.clip_grad_value_(twins, 0.05, foreach=foreach)
    for param, twin in zip(params, twins, strict=True):
        torch.testing.assert_close(param.grad.cpu(), twin.grad)
    assert torch_neuronx.get_fallback_ops() == []
    params[0].grad[0, 0] = float("nan")
    with pytest.raises(RuntimeError, match="non-finite"):
        torch.nn.utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)


FOREACH = [
    op
    for db in (
        foreach_unary_op_db,
        foreach_binary_op_db,
        foreach_pointwise_op_db,
        foreach_reduce_op_db,
        foreach_other_op_db,
    )
    for op in db
]


def is_plain(value):
    """No complex numbers and no booleans, which PyTorch's foreach treats in ways of its own."""
    if isinstance(value, (list, tuple)):
        return all(is_plain(x) for x in value)
    return not isinstance(value, (bool, complex))


def moved_list(value):
    if isinstance(value, (list, tuple)):
        return type(value)(moved_list(x) for x in value)
    return to_device(value) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("op", FOREACH, ids=lambda op: op.name)
def test_foreach(op):
    torch_neuronx.clear_op_tracking()
    dtype = torch.float32
    count = 0
    for sample in op.sample_inputs(
        "cpu", dtype, noncontiguous=False, allow_higher_dtype_scalars=True
    ):
        if count == 12:
            break
        if not is_plain((sample.args, list(sample.kwargs.values()))):
            continue
        for form in (op.method_variant, op.inplace_variant):
            if form is None:
                continue
            kwargs = sample.kwargs
            mine = [x.clone() for x in sample.input]
            moved = [to_device(x) for x in sample.input]
            args, named = moved_list(sample.args), {k: moved_list(v) for k, v in kwargs.items()}
            try:
                expected = form(mine, *sample.args, **kwargs)
            except (RuntimeError, TypeError) as error:
                with pytest.raises(type(error)):
                    form(moved, *args, **named)
                continue
            actual = form(moved, *args, **named)
            pairs = zip(moved, mine, strict=True)
            if expected is not None:
                pairs = [*pairs, *zip(actual, expected, strict=True)]
            for a, e in pairs:
                assert a.device.type == "neuron" and a.dtype == e.dtype
                torch.testing.assert_close(a.cpu(), e, rtol=2e-5, atol=2e-5, equal_nan=True)
        count += 1
    assert count > 0
    assert torch_neuronx.get_fallback_ops() == []
