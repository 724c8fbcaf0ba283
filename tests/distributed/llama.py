"""A small Llama and its training, for the ranks of test_training.py."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, HEADS, KEY_HEADS, LENGTH, BATCH, STEPS = 64, 32, 4, 2, 16, 4, 5


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.size = size
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, KEY_HEADS * size, bias=False)
        self.value = nn.Linear(WIDTH, KEY_HEADS * size, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        # -1: a rank may hold some of the heads only.
        q, k, v = (
            linear(x).unflatten(-1, (-1, self.size)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        q, k = rotate(q, angles), rotate(k, angles)
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x.transpose(1, 2).flatten(2))


def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(WIDTH)
        self.attention = Attention()
        self.feed_forward_norm = nn.RMSNorm(WIDTH)
        self.feed_forward = FeedForward()

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), angles)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Llama(nn.Module):
    """``part``: None for all of it, or which half of a pipeline."""

    def __init__(self, part: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        blocks = [Block(), Block()]
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.RMSNorm(WIDTH)
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if part == 0:
            self.blocks, self.norm, self.output = nn.ModuleList(blocks[:1]), None, None
        if part == 1:
            self.blocks, self.embedding = nn.ModuleList(blocks[1:]), None
        size = WIDTH // HEADS
        frequencies = 100.0 ** (-torch.arange(0, size, 2) / size)
        self.register_buffer("angles", torch.arange(LENGTH)[:, None] * frequencies)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks:
            x = block(x, self.angles)
        return x if self.output is None else self.output(self.norm(x))


def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets, [BATCH, LENGTH] int64."""
    g = torch.Generator().manual_seed(1)
    text = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=g)
    return text[:, :-1], text[:, 1:]


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def train(
    model: nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    averaged: bool = False,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
) -> torch.Tensor:
    """The losses of each step; ``averaged``: over the ranks, which have parts of the batch."""
    step = optimizer(model.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        loss = loss_of(model(x), y)
        step.zero_grad()
        loss.backward()
        step.step()
        loss = loss.detach().clone()
        if averaged:
            dist.all_reduce(loss, dist.ReduceOp.AVG)
        losses.append(loss.item())
    return torch.tensor(losses)


def check(losses: torch.Tensor) -> None:
    """Against one process on the CPU. f32 sums in another order, through five steps of AdamW."""
    want = train(Llama(), *tokens())
    assert want[-1] < 0.9 * want[0]
    torch.testing.assert_close(losses, want, rtol=2e-4, atol=1e-5)
