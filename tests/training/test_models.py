"""Ten AdamW steps of small models: PyTorch CPU's losses, with nothing run on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import torch_neuronx

Loss = Callable[[nn.Module, Callable[[torch.Tensor], torch.Tensor]], torch.Tensor]
STEPS = 10


def llama() -> tuple[nn.Module, Loss]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    ids = torch.randint(0, 97, (2, 16))
    labels = ids.clone()
    labels[:, :3] = -100  # as a prompt that is not learned
    return LlamaForCausalLM(config), lambda m, to: m(input_ids=to(ids), labels=to(labels)).loss


def unet() -> tuple[nn.Module, Loss]:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(8, 16),
        layers_per_block=1,
        cross_attention_dim=16,
        norm_num_groups=4,
        attention_head_dim=8,
    )
    x, target, text = torch.randn(2, 4, 8, 8), torch.randn(2, 4, 8, 8), torch.randn(2, 5, 16)
    times = torch.tensor([3, 40])
    return model, lambda m, to: mse_loss(m(to(x), to(times), to(text)).sample, to(target))


def flux2() -> tuple[nn.Module, Loss]:
    from diffusers import Flux2Transformer2DModel

    model = Flux2Transformer2DModel(
        patch_size=1,
        in_channels=8,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=24,
        timestep_guidance_channels=16,
        axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=False,
    )
    x, text, target = torch.randn(1, 16, 8), torch.randn(1, 6, 24), torch.randn(1, 16, 8)
    image_ids, text_ids = torch.zeros(1, 16, 4), torch.zeros(1, 6, 4)
    image_ids[0, :, 1], image_ids[0, :, 2] = torch.arange(16) // 4, torch.arange(16) % 4
    text_ids[0, :, 3] = torch.arange(6)

    def loss(m: nn.Module, to: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        out = m(
            hidden_states=to(x),
            encoder_hidden_states=to(text),
            timestep=to(torch.tensor([0.5])),
            img_ids=to(image_ids),
            txt_ids=to(text_ids),
        )
        return mse_loss(out.sample, to(target))

    return model, loss


def convolutional() -> tuple[nn.Module, Loss]:
    # A bias before a norm has a gradient of rounding errors only, which AdamW would make large.
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Upsample(scale_factor=2),
        nn.InstanceNorm2d(8, affine=True, track_running_stats=True),
        nn.GELU(),
        nn.Conv2d(8, 8, 3, stride=2, bias=False),
        nn.BatchNorm2d(8, momentum=None),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
        nn.RMSNorm(5),
    )
    x, target = torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))
    return model, lambda m, to: cross_entropy(m(to(x)), to(target), label_smoothing=0.1)


MODELS = {make.__name__: make for make in (llama, unet, flux2, convolutional)}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "default": {},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


def train(
    name: str,
    device: str,
    dtype: torch.dtype = torch.float32,
    scaled: bool = False,
    checkpointed: bool = False,
    **options: Any,
) -> tuple[nn.Module, torch.Tensor]:
    """The model after the steps, and the loss before each."""
    torch.manual_seed(0)
    model, loss_of = MODELS[name]()
    model.to(device, dtype).train()
    if checkpointed:
        model.gradient_checkpointing_enable() if name == "llama" else (
            model.enable_gradient_checkpointing()
        )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
    scaler = torch.amp.GradScaler(device, enabled=scaled, init_scale=1024.0)

    def to(x: torch.Tensor) -> torch.Tensor:
        return x.to(device, dtype) if x.is_floating_point() else x.to(device)

    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, to)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return model, torch.stack(losses).cpu().float()


@pytest.fixture(scope="module")
def on_cpu() -> Callable[[str], tuple[nn.Module, torch.Tensor]]:
    """Each model trained by PyTorch CPU in float32, once."""
    trained: dict[str, tuple[nn.Module, torch.Tensor]] = {}

    def get(name: str) -> tuple[nn.Module, torch.Tensor]:
        if name not in trained:
            trained[name] = train(name, "cpu")
        return trained[name]

    return get


@pytest.mark.parametrize("form", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_losses_follow_cpu(name, form, on_cpu):
    expected_model, expected = on_cpu(name)
    torch_neuronx.clear_op_tracking()
    model, losses = train(name, "neuron", scaled=form == "default", **OPTIMIZERS[form])
    assert torch_neuronx.get_fallback_ops() == []
    assert losses[-1] < losses[0] - 1e-3  # it learns
    # Another order of summation in each layer, over ten steps.
    torch.testing.assert_close(losses, expected, rtol=2e-5, atol=2e-5)
    statistics = dict(expected_model.named_buffers())
    for key, value in model.named_buffers():
        torch.testing.assert_close(value.cpu(), statistics[key], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "unet", "flux2"])
def test_bfloat16_losses_follow_float32(name, on_cpu):
    _, expected = on_cpu(name)
    torch_neuronx.clear_op_tracking()
    _, losses = train(name, "neuron", torch.bfloat16, fused=True)
    assert torch_neuronx.get_fallback_ops() == []
    # Weights move by less than their last place in some steps: a few units of 2^-8 of the loss.
    torch.testing.assert_close(losses, expected, rtol=3e-2, atol=1e-2)


@pytest.mark.parametrize("name", ["llama", "unet", "flux2"])
def test_checkpointing_changes_nothing(name, on_cpu):
    _, expected = on_cpu(name)
    torch_neuronx.clear_op_tracking()
    _, losses = train(name, "neuron", checkpointed=True, fused=True)
    assert torch_neuronx.get_fallback_ops() == []
    torch.testing.assert_close(losses, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("momentum", [0.1, None, 0.0])
def test_running_statistics(momentum, memory_format):
    torch.manual_seed(0)
    torch_neuronx.clear_op_tracking()
    for kind in (nn.BatchNorm2d, nn.InstanceNorm2d):
        layer = kind(3, momentum=momentum or 0.1, affine=True, track_running_stats=True)
        layer.momentum = momentum if kind is nn.BatchNorm2d else (momentum or 0.0)
        twin = kind(3, affine=True, track_running_stats=True).to("neuron")
        twin.load_state_dict(layer.state_dict())
        twin.momentum = layer.momentum
        for step in range(3):
            x = (torch.randn(4, 3, 5, 6) * (step + 1) + step).to(memory_format=memory_format)
            expected, actual = layer(x), twin(x.to("neuron"))
            torch.testing.assert_close(actual.cpu(), expected, rtol=2e-5, atol=2e-5)
            assert actual.stride() == expected.stride()
        for key, value in twin.state_dict().items():
            torch.testing.assert_close(value.cpu(), layer.state_dict()[key], rtol=1e-5, atol=1e-5)
        layer.eval(), twin.eval()
        torch.testing.assert_close(twin(x.to("neuron")).cpu(), layer(x), rtol=2e-5, atol=2e-5)
    assert torch_neuronx.get_fallback_ops() == []


def test_a_target_out_of_range_is_an_error():
    logits = torch.randn(2, 5, device="neuron")
    with pytest.raises(IndexError):
        cross_entropy(logits, torch.tensor([1, 5], device="neuron")).item()
