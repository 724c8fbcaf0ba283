"""The models of the benchmarks: random weights, made from configurations.

Each entry gives ``(module, inputs)`` on the CPU in float32; the caller moves and casts copies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

Inputs = dict[str, Any]
Model = tuple[torch.nn.Module, Inputs]


class Only(torch.nn.Module):
    """The module's first output, as a plain tensor: what every contender can return."""

    def __init__(self, module: torch.nn.Module, method: str = "forward") -> None:
        super().__init__()
        self.module = module
        self.method = method

    def forward(self, **inputs: Any) -> torch.Tensor:
        return getattr(self.module, self.method)(**inputs, return_dict=False)[0]


def _transformer(spec: dict[str, Any], channels: int, text: int, tokens: tuple[int, int]) -> Model:
    from make_klein import build_transformer

    torch.manual_seed(0)
    module = build_transformer(spec, channels, text).eval()
    text_tokens, image_tokens = tokens
    side = int(image_tokens**0.5)
    image_ids = torch.zeros(image_tokens, 4)
    image_ids[:, 1] = torch.arange(image_tokens) // side
    image_ids[:, 2] = torch.arange(image_tokens) % side
    text_ids = torch.zeros(text_tokens, 4)
    text_ids[:, 3] = torch.arange(text_tokens)
    inputs = {
        "hidden_states": torch.randn(1, image_tokens, channels),
        "encoder_hidden_states": torch.randn(1, text_tokens, text),
        "timestep": torch.tensor([0.5]),
        "img_ids": image_ids[None],
        "txt_ids": text_ids[None],
        "guidance": None,
    }
    return Only(module), inputs


def tiny_dit() -> Model:
    """The tiny Klein transformer, 512 text and 16 image tokens."""
    from make_klein import SIZES

    return _transformer(SIZES["tiny"]["transformer"], 16, 192, (512, 16))


def mid_dit() -> Model:
    """Flux2 blocks of real width: 24 heads of 128, 1 double and 2 single, 512 + 256 tokens."""
    spec = {
        "num_layers": 1,
        "num_single_layers": 2,
        "attention_head_dim": 128,
        "num_attention_heads": 24,
        "axes_dims_rope": (32, 32, 32, 32),
    }
    return _transformer(spec, 128, 7680, (512, 256))


def qwen3_layers() -> Model:
    """Two layers of Qwen3-4B over 512 tokens."""
    from transformers import Qwen3Config, Qwen3Model

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=1024,
        hidden_size=2560,
        intermediate_size=9728,
        num_hidden_layers=2,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        use_cache=False,
    )
    module = Qwen3Model(config).eval()
    return Only(module), {"input_ids": torch.randint(0, 1024, (1, 512))}


def vae_decoder() -> Model:
    """The decoder of the real Flux2 VAE to 256 x 256 pixels."""
    from make_klein import SIZES, build_vae

    torch.manual_seed(0)
    module = build_vae(SIZES["real"]["vae"]).eval()
    return Only(module, "decode"), {"z": torch.randn(1, 32, 32, 32)}


def small_unet() -> Model:
    """UNet2DConditionModel with two levels and cross attention, 32 x 32."""
    from diffusers import UNet2DConditionModel

    torch.manual_seed(0)
    module = UNet2DConditionModel(
        sample_size=32,
        block_out_channels=(64, 128),
        layers_per_block=2,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=64,
        attention_head_dim=8,
        norm_num_groups=32,
    ).eval()
    inputs = {
        "sample": torch.randn(1, 4, 32, 32),
        "timestep": torch.tensor([10]),
        "encoder_hidden_states": torch.randn(1, 77, 64),
    }
    return Only(module), inputs


def llama() -> Model:
    """A small Llama for a training step: 4 layers of width 256, 2 x 128 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        use_cache=False,
    )
    tokens = torch.randint(0, 1024, (2, 128))
    return Only(LlamaForCausalLM(config)), {"input_ids": tokens, "labels": tokens}


INFERENCE: dict[str, Callable[[], Model]] = {
    "tiny_dit": tiny_dit,
    "mid_dit": mid_dit,
    "qwen3_layers": qwen3_layers,
    "vae_decoder": vae_decoder,
    "small_unet": small_unet,
}
TRAINING: dict[str, Callable[[], Model]] = {"llama_step": llama}
