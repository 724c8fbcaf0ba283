"""The device's fused attention on DTensors: sharded by batch or heads, and context parallel.

torch has rules for the attention ops of its own devices only. Query, key, value [B, H, L, E].
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_map

_FORWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default
_BACKWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward.default
_SEQUENCE = 2


def install_strategies(module: ModuleType) -> None:
    """``module``: torch.distributed.tensor._ops._matrix_ops, whose helpers are used."""
    schema_info = module.RuntimeSchemaInfo(4)
    module.register_op_strategy(_FORWARD, schema_info=schema_info)(_forward_strategy)
    module.register_op_strategy(_BACKWARD)(_backward_strategy)


def _inputs(op_schema: Any, bias_index: int) -> tuple[list[Any], list[list[Any]]]:
    """How a mask and the other tensors lie when all, batch (0) or heads (1) are split."""
    from torch.distributed.tensor._op_schema import OpStrategy
    from torch.distributed.tensor.placement_types import Replicate, Shard

    bias = op_schema.args_schema[bias_index] if len(op_schema.args_schema) > bias_index else None
    options: list[Any] = [Replicate(), Shard(0), Shard(1)]
    masks = []
    for option in options:
        mask = []
        if isinstance(bias, OpStrategy):
            dim = option.dim if isinstance(option, Shard) else None
            # A mask is broadcast from the right; what has size 1, or is not there, is whole.
            own = None if dim is None else dim - (4 - len(bias.shape))
            split = own is not None and own >= 0 and bias.shape[own] > 1
            mask = [Shard(own) if split else Replicate()]
        masks.append(mask)
    return options, masks


def _forward_strategy(op_schema: Any) -> Any:
    from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy
    from torch.distributed.tensor.placement_types import Replicate

    options, masks = _inputs(op_schema, 3)
    whole = Replicate()
    strategies = [
        # out, logsumexp; cumulative and longest lengths; the generator's state; the debug mask
        [split, split, None, None, None, None, whole, whole, whole, split, split, split, *mask]
        for split, mask in zip(options, masks, strict=True)
    ]
    mesh = op_schema.get_mesh_from_args()
    return expand_to_full_mesh_op_strategy(mesh, op_schema, strategies, input_index=9)


def _backward_strategy(op_schema: Any) -> Any:
    from torch.distributed.tensor._op_schema import OpStrategy
    from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy
    from torch.distributed.tensor.placement_types import Replicate

    options, masks = _inputs(op_schema, 4)
    tensors = sum(isinstance(arg, OpStrategy) for arg in op_schema.args_schema)
    strategies = []
    for split, mask in zip(options, masks, strict=True):
        inputs = [*[split] * 4, *mask, split, split]  # grad, query, key, value; out, logsumexp
        inputs += [Replicate()] * (tensors - len(inputs))
        strategies.append([split, split, split, None, *inputs])
    mesh = op_schema.get_mesh_from_args(validate=False)
    return expand_to_full_mesh_op_strategy(mesh, op_schema, strategies, input_index=4)


def install_context_parallel(module: ModuleType) -> None:
    """``module``: torch's context parallel attention, whose ring is used."""

    def handle(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        ring = _Ring(module, args[1] if op is _BACKWARD else args[0])
        results = (ring.backward if op is _BACKWARD else ring.forward)(
            *tree_map(_local, args), **tree_map(_local, kwargs)
        )
        return tuple(ring.wrap(result) for result in results)

    module.custom_ops[_FORWARD] = handle
    module.custom_ops[_BACKWARD] = handle


def _local(value: Any) -> Any:
    from torch.distributed.tensor import DTensor

    return value._local_tensor if isinstance(value, DTensor) else value


class _Ring:
    """Attention whose keys and values go around the ranks among which the sequence is split."""

    def __init__(self, module: ModuleType, query: Any) -> None:
        from torch.distributed.tensor import Shard

        if query.device_mesh.ndim != 1 or query.placements != (Shard(_SEQUENCE),):
            raise NotImplementedError(
                f"context parallel attention on neuron takes tensors that are split along dimension"
                f" {_SEQUENCE} of a mesh of one dimension, not {query.placements} on "
                f"{query.device_mesh}"
            )
        self.module, self.mesh, self.placements = module, query.device_mesh, query.placements

    def wrap(self, result: Any) -> Any:
        from torch.distributed.tensor import DTensor

        # What has no sequence (the generator's state) is each rank's own.
        if not isinstance(result, torch.Tensor) or result.dim() <= _SEQUENCE:
            return result
        return DTensor.from_local(result, self.mesh, self.placements, run_check=False)

    def _refuse(self, attn_bias: Any, dropout_p: float) -> None:
        if attn_bias is not None:
            raise NotImplementedError("context parallel attention on neuron takes no attn_mask")
        if dropout_p:
            raise NotImplementedError(
                f"context parallel attention on neuron has no dropout (dropout_p={dropout_p})"
            )

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_bias: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        return_debug_mask: bool = False,
        *,
        scale: float | None = None,
    ) -> tuple[Any, ...]:
        self._refuse(attn_bias, dropout_p)
        return self.module._templated_ring_attention(
            self.mesh.get_group(),
            _SEQUENCE,
            _FORWARD,
            query=query,
            key=key,
            value=value,
            is_causal=is_causal,
            scale=scale,
        )

    def backward(
        self,
        grad_out: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_bias: torch.Tensor | None,
        grad_input_mask: list[bool],
        out: torch.Tensor,
        logsumexp: torch.Tensor,
        cum_seq_q: Any,
        cum_seq_k: Any,
        max_q: int,
        max_k: int,
        dropout_p: float,
        is_causal: bool,
        philox_seed: torch.Tensor,
        philox_offset: torch.Tensor,
        *,
        scale: float | None = None,
    ) -> tuple[Any, ...]:
        self._refuse(attn_bias, dropout_p)
        return self.module._templated_ring_attention_backward(
            self.mesh.get_group(),
            _SEQUENCE,
            _BACKWARD,
            grad_out=grad_out,
            grad_out_name="grad_out",
            query=query,
            key=key,
            value=value,
            out=out,
            logsumexp=logsumexp,
            is_causal=is_causal,
            attn_bias=None,
            grad_input_mask=grad_input_mask,
            cum_seq_q=cum_seq_q,
            cum_seq_k=cum_seq_k,
            max_q=max_q,
            max_k=max_k,
            dropout_p=dropout_p,
            philox_seed=philox_seed,
            philox_offset=philox_offset,
            scale=scale,
        )
