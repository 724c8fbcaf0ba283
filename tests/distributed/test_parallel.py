"""Training with tensor parallelism, DDP and FSDP2 follows the losses of one process on the CPU."""

from __future__ import annotations

from collections.abc import Callable

Ranks = Callable[..., list[str]]


def test_training_follows_one_process(ranks: Ranks) -> None:
    ranks(
        """
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, parallelize_module)

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

torch.manual_seed(1)
batch = torch.randn(8, 16)

def train(model, x, share):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(5):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = loss.detach().clone()
        if share:
            dist.all_reduce(loss, dist.ReduceOp.AVG)
        losses.append(loss.item())
    return torch.tensor(losses)

want = train(make(), batch, False)
# f32 sums in another order
close = lambda got: torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
mesh = init_device_mesh("neuron", (size,))
plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
close(train(parallelize_module(make().to("neuron"), mesh, plan), batch.to("neuron"), False))
mine = batch.chunk(size)[rank].to("neuron")
close(train(nn.parallel.DistributedDataParallel(make().to("neuron")), mine, True))
model = make().to("neuron")
for part in (model[0], model[2], model):
    fully_shard(part)
close(train(model, mine, True))
"""
    )
