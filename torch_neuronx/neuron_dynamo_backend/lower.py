"""Nodes of an AOTAutograd graph, one by one, into the C++ graph builder."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from .. import _C
from .errors import NEFFCompilationError

DTYPES = {
    torch.bool: "b8",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
}

# Overloads that the table knows under another name.
RENAMED = {
    "index.Tensor": "neuron::index",
    "index_put": "neuron::index_put_",
    "_unsafe_index.Tensor": "neuron::index",
    "_unsafe_index_put": "neuron::index_put_",
    "arange.start_step": "arange.start_out",
    "arange.start": "arange.start_out",
    "arange": "arange.start_out",
    "sum": "sum.dim_IntList",
    "mean": "mean.dim",
}
FUSED_ATTENTION = "_scaled_dot_product_fused_attention_overrideable"


def table_name(op: torch._ops.OpOverload) -> str:
    """``aten.add.Tensor`` -> "add.Tensor", ``aten.relu.default`` -> "relu"."""
    base = op._schema.name.removeprefix("aten::")
    name = f"{base}.{op._schema.overload_name}" if op._schema.overload_name else base
    name = RENAMED.get(name, name)
    tensor_form = f"{base}.Tensor"
    if name.endswith(".Scalar") and not _C.graph.lowered(name) and _C.graph.lowered(tensor_form):
        return tensor_form  # the number takes the place of the second tensor
    return name


class UnsupportedOp(NEFFCompilationError, NotImplementedError):
    """An op of the graph has no lowering."""


def _type(value: torch.Tensor) -> tuple[str, list[int]]:
    if value.dtype not in DTYPES:
        raise UnsupportedOp(f"dtype {value.dtype} is not supported by backend 'neuron'")
    return DTYPES[value.dtype], [int(s) for s in value.shape]


def _kind(arg: torch.Argument) -> str:
    text = str(arg.real_type).removesuffix("?")
    if text.startswith("Optional["):
        text = text[len("Optional[") : -1]
    kinds = {
        "Tensor": "tensor",
        "number": "number",
        "Scalar": "number",
        "float": "number",
        "int": "int",
        "SymInt": "int",
        "bool": "bool",
        "str": "str",
        "ScalarType": "dtype",
    }
    if text.startswith("List[") or text.endswith("]"):
        return "tensors" if "Tensor" in text else "ints"
    return kinds.get(text, "ignored")


def _where(node: torch.fx.Node) -> str:
    trace = node.meta.get("stack_trace")
    return (
        "\n" + trace.strip().splitlines()[-2].strip()
        if trace and len(trace.strip().splitlines()) > 1
        else ""
    )


class NotLowered(UnsupportedOp):
    """A node that the table cannot express, though other nodes of the graph may be compiled."""

    def __init__(self, node: torch.fx.Node, message: str) -> None:
        super().__init__(message)
        self.node = node


def describe(node: torch.fx.Node, reason: str) -> str:
    return (
        f"backend 'neuron' cannot compile {node.target}: {reason}{_where(node)}\n"
        "Leave the code around it to eager mode with torch.compiler.disable, let such ops run on "
        "the CPU with TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION=0, or report the op."
    )


# Random ops of graphs as eager mode runs them: the table's op, and its arguments from the node's.
_UNIFORM = ("uniform_", lambda a: [("from", a.get("from", 0.0)), ("to", a.get("to", 1.0))])
_NORMAL = ("normal_", lambda a: [("mean", a.get("mean", 0.0)), ("std", a.get("std", 1.0))])
_BERNOULLI = ("bernoulli_.float", lambda a: [("p", a["p"])])
aten = torch.ops.aten
RANDOM: dict[Any, tuple[str, Any]] = {
    aten.uniform.default: _UNIFORM,
    aten.rand.default: _UNIFORM,
    aten.rand_like.default: _UNIFORM,
    aten.normal_functional.default: _NORMAL,
    aten.randn.default: _NORMAL,
    aten.randn_like.default: _NORMAL,
    aten.bernoulli.p: _BERNOULLI,
}


def is_symbolic(node: torch.fx.Node) -> bool:
    """Arithmetic on sizes: known when the graph is compiled."""
    target = node.target
    if target in (operator.getitem,) or isinstance(target, torch._ops.HigherOrderOperator):
        return False
    if not isinstance(target, torch._ops.OpOverload):
        return True
    return target._schema.name in ("aten::sym_size", "aten::sym_stride", "aten::sym_numel")


def in_table(node: torch.fx.Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return target is operator.getitem or is_symbolic(node)
    return (
        target._schema.name in (f"aten::{FUSED_ATTENTION}", f"aten::{FUSED_ATTENTION}_backward")
        or is_symbolic(node)
        or target in RANDOM
        or _C.graph.lowered(table_name(target))
    )


class Lowering:
    """One executable from some nodes of a graph.

    ``constants``: values of nodes that are no tensors. Tensors from outside, in the order of
    :attr:`inputs`, are the executable's inputs; ``outputs`` its results.
    """

    def __init__(self, name: str, constants: dict[torch.fx.Node, Any]) -> None:
        self.builder = _C.graph.Builder(name)
        self.values: dict[torch.fx.Node, Any] = dict(constants)
        self.inputs: list[torch.fx.Node] = []
        self.default_float = DTYPES[torch.get_default_dtype()]

    def run(self, nodes: Iterable[torch.fx.Node], outputs: Sequence[torch.fx.Node]) -> None:
        for node in nodes:
            for operand in node.all_input_nodes:
                if operand not in self.values:
                    self.values[operand] = self.input(operand.meta["val"])
                    self.inputs.append(operand)
            self.values[node] = self.call(node)
        for node in outputs:
            strides = [int(s) for s in node.meta["val"].stride()]
            self.builder.output(self.values[node], strides)

    def input(self, tensor: torch.Tensor) -> Any:
        dtype, dims = _type(tensor)
        return self.builder.input(dtype, dims, [int(s) for s in tensor.stride()])

    def resolve(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            value = self.values[value]
        if isinstance(value, (list, tuple)):
            return [self.resolve(v) for v in value]
        if isinstance(value, (torch.SymInt, torch.SymBool)):
            return int(value)
        return value

    def call(self, node: torch.fx.Node) -> Any:
        target = node.target
        if target is operator.getitem:
            return self.values[node.args[0]][node.args[1]]
        if target._schema.name == f"aten::{FUSED_ATTENTION}":
            return self.attention(node)
        if target._schema.name == f"aten::{FUSED_ATTENTION}_backward":
            return self.attention_backward(node)
        try:
            if target in RANDOM:
                return self.random(node)
            return self.lower(node, table_name(target), self.schema_args(node))
        except NotImplementedError as error:
            raise NotLowered(node, describe(node, str(error))) from error

    def schema_args(self, node: torch.fx.Node) -> list[tuple[str, str, Any]]:
        out = []
        op_name = table_name(node.target)
        for position, arg in enumerate(node.target._schema.arguments):
            if position < len(node.args):
                value = node.args[position]
            elif arg.name in node.kwargs:
                value = node.kwargs[arg.name]
            else:
                value = arg.default_value
            kind = _kind(arg)
            value = self.resolve(value)
            if kind == "ignored":
                continue
            if kind == "dtype" and value is not None:
                value = DTYPES[value]
            number_for_tensor = arg.name == "other" and op_name.endswith(".Tensor")
            if isinstance(value, (int, float, bool)) and (kind == "tensor" or number_for_tensor):
                kind = "wrapped"
            out.append((arg.name, kind, value))
        return self.complete(op_name, out)

    @staticmethod
    def complete(name: str, args: list[tuple[str, str, Any]]) -> list[tuple[str, str, Any]]:
        """Arguments that the overload behind a renamed one has in addition."""
        have = {arg[0] for arg in args}
        if name == "arange.start_out":
            for key, value in (("start", 0), ("step", 1)):
                if key not in have:
                    args.append((key, "number", value))
        if name in ("sum.dim_IntList", "mean.dim"):
            for key, kind, value in (("dim", "ints", None), ("keepdim", "bool", False)):
                if key not in have:
                    args.append((key, kind, value))
        return args

    def lower(self, node: torch.fx.Node, name: str, args: list[tuple[str, str, Any]]) -> Any:
        meta = node.meta["val"]
        several = isinstance(meta, (tuple, list))
        results = [
            None if value is None else _type(value) for value in (meta if several else [meta])
        ]
        values = self.builder.call(name, args, results, self.default_float)
        return values if several else values[0]

    def random(self, node: torch.fx.Node) -> Any:
        args = {name: value for name, _, value in self.schema_args(node)}
        if node.kwargs.get("generator") is not None:
            raise NotLowered(node, describe(node, "a generator of its own"))
        table, arguments = RANDOM[node.target]
        results = [_type(node.meta["val"])]
        numbers = [(name, "number", float(value)) for name, value in arguments(args)]
        return self.builder.call(table, numbers, results, self.default_float)[0]

    def attention_args(self, node: torch.fx.Node, query: int) -> dict[str, tuple[str, Any]]:
        """What the device's attention ops take alike; `query`: the position of that argument."""
        args = {name: value for name, _, value in self.schema_args(node)}
        if args["dropout_p"]:
            reason = f"attention with dropout_p={args['dropout_p']}"
            raise NotLowered(node, describe(node, reason))
        head_dim = int(node.args[query].meta["val"].shape[-1])
        scale = args["scale"] if args.get("scale") is not None else head_dim**-0.5
        call = {name: ("tensor", args[name]) for name in ("query", "key", "value", "attn_bias")}
        call["is_causal"] = ("bool", args["is_causal"])
        call["scale"] = ("number", float(scale))
        call["dropout_p"] = ("number", 0.0)
        return call

    def call_own(
        self, name: str, args: dict[str, tuple[str, Any]], results: Sequence[torch.Tensor]
    ) -> list[Any]:
        flat = [(arg, kind, value) for arg, (kind, value) in args.items()]
        types = [_type(value) for value in results]
        return self.builder.call(name, flat, types, self.default_float)

    def attention(self, node: torch.fx.Node) -> list[Any]:
        meta = node.meta["val"]
        out, lse = self.call_own("neuron::attention", self.attention_args(node, 0), meta[:2])
        # Seed and offset: the backward graph takes them, and without dropout does not look at them.
        random = [self.call_own("zero_", {}, [value])[0] for value in meta[6:8]]
        return [
            out,
            lse,
            None,
            None,
            int(meta[4]),
            int(meta[5]),
            *random,
            None,
        ]

    def attention_backward(self, node: torch.fx.Node) -> list[Any]:
        args = {name: value for name, _, value in self.schema_args(node)}
        call = self.attention_args(node, 1)
        for name in ("grad_out", "out", "logsumexp"):
            call[name] = ("tensor", args[name])
        meta = node.meta["val"]
        gradients = self.call_own("neuron::attention_backward", call, meta[:3])
        if args["attn_bias"] is None or not args["grad_input_mask"][3]:
            return [*gradients, None]
        return [*gradients, *self.call_own("neuron::attention_bias_gradient", call, meta[3:4])]
