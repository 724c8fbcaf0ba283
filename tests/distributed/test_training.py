"""Five steps of a small Llama under each way of sharing it follow the losses of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.distributed.conftest import ROOT

Ranks = Callable[..., list[str]]

PROLOGUE = """
import llama
from llama import Llama, tokens, train, check, loss_of
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("neuron", (size,))
x, y = (t.to("neuron") for t in tokens())
mine = x.chunk(size)[rank], y.chunk(size)[rank]
"""


def test_tensor_and_sequence_parallel(ranks: Ranks) -> None:
    ranks(
        PROLOGUE
        + """
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module)
whole = dict(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None))
plan = {
    "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    "blocks.*.attention_norm": SequenceParallel(),
    "blocks.*.feed_forward_norm": SequenceParallel(),
    "blocks.*.attention": PrepareModuleInput(**whole),
    "blocks.*.feed_forward": PrepareModuleInput(
        input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
    "blocks.*.attention.out": RowwiseParallel(output_layouts=Shard(1)),
    "blocks.*.feed_forward.down": RowwiseParallel(output_layouts=Shard(1)),
}
for name in ("attention.query", "attention.key", "attention.value", "feed_forward.gate",
             "feed_forward.up"):
    plan["blocks.*." + name] = ColwiseParallel()
check(train(parallelize_module(Llama().to("neuron"), mesh, plan), x, y))
"""
    )


def test_fsdp2_with_checkpointing(ranks: Ranks) -> None:
    ranks(
        PROLOGUE
        + """
from torch.distributed.fsdp import fully_shard
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
for recompute in (False, True):
    model = Llama().to("neuron")
    for i, block in enumerate(model.blocks):
        if recompute:
            model.blocks[i] = block = checkpoint_wrapper(block)
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    check(train(model, *mine, averaged=True))
"""
    )


def test_fsdp1(ranks: Ranks) -> None:
    ranks(
        PROLOGUE
        + """
from functools import partial
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
model = FullyShardedDataParallel(
    Llama().to("neuron"), auto_wrap_policy=ModuleWrapPolicy([llama.Block]),
    device_id=torch.device("neuron", rank), use_orig_params=True)
check(train(model, *mine, averaged=True))
"""
    )


def test_ddp(ranks: Ranks) -> None:
    """Several buckets; static graph, views of the buckets, a hook, accumulation without sync."""
    ranks(
        PROLOGUE
        + """
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
for options in [{}, {"gradient_as_bucket_view": True, "static_graph": True}]:
    model = DistributedDataParallel(Llama().to("neuron"), bucket_cap_mb=0.01, **options)
    if options:
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    check(train(model, *mine, averaged=True))
model = DistributedDataParallel(Llama().to("neuron"))
want = Llama()
loss_of(want(tokens()[0]), tokens()[1]).backward()
with model.no_sync():
    (loss_of(model(mine[0][:1]), mine[1][:1]) / 2).backward()
(loss_of(model(mine[0][1:]), mine[1][1:]) / 2).backward()
for p, q in zip(model.parameters(), want.parameters()):
    torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-4, atol=1e-5)
"""
    )


def test_checkpoint_with_another_world_size(ranks: Ranks, tmp_path: Path) -> None:
    code = """
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict, get_optimizer_state_dict, set_model_state_dict)
from torch.distributed.fsdp import fully_shard
model = Llama().to("neuron")
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
"""
    code += f"path = {str(tmp_path / 'checkpoint')!r}\n"
    save = """
train(model, *mine)
step = {"model": get_model_state_dict(model)}
dcp.save(step, checkpoint_id=path)
print([p.full_tensor().double().sum().item() for p in model.parameters()])
"""
    load = """
with torch.no_grad():
    for p in model.parameters():
        p.zero_()
state = {"model": get_model_state_dict(model)}
dcp.load(state, checkpoint_id=path)
set_model_state_dict(model, state["model"])
print([p.full_tensor().double().sum().item() for p in model.parameters()])
"""
    saved = ranks(PROLOGUE + code + save)
    loaded = ranks(
        PROLOGUE.replace("chunk(size)", "chunk(1)")
        .replace("[rank], y", "[0], y")
        .replace("[rank]\n", "[0]\n")
        + code
        + load,
        size=3,
    )
    assert set(saved) == set(loaded) and len(set(saved)) == 1


def test_pipeline(ranks: Ranks) -> None:
    """Activations and gradients go between the stages as messages."""
    ranks(
        PROLOGUE
        + """
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
for kind in (ScheduleGPipe, Schedule1F1B):
    part = Llama(part=rank).to("neuron")
    stage = PipelineStage(part, rank, size, torch.device("neuron", rank))
    schedule = kind(stage, n_microbatches=4, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(part.parameters(), lr=0.01)
    means = []
    for _ in range(llama.STEPS):
        optimizer.zero_grad()
        losses = []
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=losses)
            means.append(torch.stack(losses).mean().item())
        optimizer.step()
    if rank == 1:
        check(torch.tensor(means))
    dist.barrier()
"""
    )


def test_attention_of_dtensors(ranks: Ranks) -> None:
    """Sharded by batch and by heads, with masks of several ranks; gradients too."""
    ranks(
        PROLOGUE
        + """
import torch.nn.functional as F
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
torch.manual_seed(0)
whole = [torch.randn(2, 4, 6, 8) for _ in range(4)]
masks = [None, torch.randn(6, 6), torch.randn(2, 1, 6, 6), torch.randn(1, 4, 6, 6)]
for placement in (Shard(0), Shard(1), Replicate()):
    for mask in masks:
        want = [t.clone().requires_grad_() for t in whole[:3]]
        F.scaled_dot_product_attention(*want, attn_mask=mask).backward(whole[3])
        got = [distribute_tensor(t.to("neuron"), mesh, [placement]).requires_grad_()
               for t in whole[:3]]
        moved = mask
        if mask is not None:
            moved = distribute_tensor(mask.to("neuron"), mesh, [Replicate()])
        out = F.scaled_dot_product_attention(*got, attn_mask=moved)
        assert out.placements == (placement,), (placement, mask)
        out.backward(distribute_tensor(whole[3].to("neuron"), mesh, [placement]))
        for a, b in zip(got, want):
            # f32 sums in another order
            torch.testing.assert_close(a.grad.full_tensor().cpu(), b.grad, rtol=1e-4, atol=1e-5)
"""
    )


def test_context_parallel(ranks: Ranks) -> None:
    """Each rank has a part of every sequence; attention goes around the ring."""
    ranks(
        PROLOGUE
        + """
from torch.distributed.tensor.experimental import context_parallel
model = Llama().to("neuron")
for p in model.parameters():
    dist.broadcast(p.data, 0)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
means = []
for _ in range(llama.STEPS):
    inputs, targets, angles = x.clone(), y.clone(), model.angles.clone()
    model.angles = angles
    optimizer.zero_grad()
    with context_parallel(mesh, buffers=[inputs, targets, angles], buffer_seq_dims=[1, 1, 0]):
        loss = loss_of(model(inputs), targets)
        loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, dist.ReduceOp.AVG)
    optimizer.step()
    loss = loss.detach().clone()
    dist.all_reduce(loss, dist.ReduceOp.AVG)
    means.append(loss.item())
check(torch.tensor(means))
"""
    )


def test_accelerate(tmp_path: Path) -> None:
    """Its launcher, on two ranks."""
    script = tmp_path / "train.py"
    script.write_text(
        """
import torch
from accelerate import Accelerator
from llama import Llama, check, loss_of, tokens, STEPS
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
assert accelerator.num_processes == 2 and accelerator.device.type == "neuron", accelerator.state
model = Llama()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = DataLoader(TensorDataset(*tokens()), batch_size=2)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
means = []
for _ in range(STEPS):
    for x, y in data:
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        means.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
check(torch.tensor(means))
accelerator.wait_for_everyone()
accelerator.print("followed")
accelerator.end_training()
"""
    )
    result = subprocess.run(
        [sys.executable, "-m", "accelerate.commands.launch", "--num_processes=2"]
        + ["--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no", str(script)],
        cwd=ROOT,
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "tests/distributed")}
        | {"HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert result.returncode == 0 and "followed" in result.stdout, result.stderr
