"""From a graph of AOTAutograd to a program: which nodes are compiled together, which run alone.

Most graphs are one executable. An op without a lowering that the device runs in eager mode all the
same (an engine, a composition, a collective, a higher-order op with its branches compiled) cuts the
graph: what comes before it and what needs its result are executables of their own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .. import _C
from .lower import Lowering, NotLowered, UnsupportedOp, describe, in_table, is_symbolic
from .overlap import is_wait, spread
from .program import INSTEAD, Branch, CallStep, GraphStep, Program, Slot, on_device
from .records import timed

_COLLECTIVES = ("_c10d_functional", "_c10d_functional_autograd")
_NATIVE_KEYS = ("PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


def runs_natively(node: Node) -> bool:
    """Whether eager mode runs the node's op on the device, not on the CPU."""
    target = node.target
    if isinstance(target, torch._ops.HigherOrderOperator):
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return False
    name = target._schema.name
    if target._schema.overload_name:
        name += f".{target._schema.overload_name}"
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has(name, key) for key in _NATIVE_KEYS)


def may_run_between(node: Node) -> bool:
    """Whether the node may cut the graph: it runs natively, or the user lets it run on the CPU."""
    if runs_natively(node):
        return True
    return isinstance(node.target, torch._ops.OpOverload) and not _C.device.env_bool(
        "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION"
    )


def is_ordered(node: Node) -> bool:
    """Whether the node must keep its place among others of its kind.

    It draws random numbers, or it is a collective, which all ranks must issue in one order.
    """
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace in _COLLECTIVES:
        return True
    return torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable


def is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


@dataclass
class _Cut:
    """Which nodes are compiled together, and which run between the executables.

    Stage k is executable k followed by the eager calls that need it; overlap.py may split it.
    """

    compiled: dict[int, list[Node]] = field(default_factory=dict)
    eager: dict[int, list[Node]] = field(default_factory=dict)
    constants: dict[Node, Any] = field(default_factory=dict)  # what is known now
    stages: dict[Node, int] = field(default_factory=dict)


def _cut(gm: GraphModule, eager: set[Node]) -> _Cut:
    cut = _Cut()
    last_ordered = 0
    for node in gm.graph.nodes:
        if node.op in ("output", "get_attr"):
            continue
        if node.op == "placeholder":
            value = node.meta.get("val")
            if isinstance(value, (int, float, torch.SymInt, torch.SymFloat)):
                whole = isinstance(value, (int, torch.SymInt))
                cut.constants[node] = int(value) if whole else float(value)
            elif value is None:
                cut.constants[node] = None
            continue
        if node.op != "call_function":
            raise UnsupportedOp(
                f"backend 'neuron' does not know graph nodes of kind {node.op} ({node})"
            )
        if is_symbolic(node) and node not in eager:
            cut.constants[node] = _evaluate(node, cut.constants)
            continue
        compiled_in = [cut.stages[n] for n in node.all_input_nodes if _is(n, cut, eager, False)]
        eager_in = [cut.stages[n] for n in node.all_input_nodes if _is(n, cut, eager, True)]
        if node in eager or _reads_eager(node, eager):
            eager.add(node)  # the parts of an eager result with it
            stage = max([0, *compiled_in, *eager_in])
            if is_ordered(node) and not _reads_eager(node, eager):
                stage = last_ordered = max(stage, last_ordered)
            cut.eager.setdefault(stage, []).append(node)
        else:
            stage = max([0, *compiled_in, *(s + 1 for s in eager_in)])
            cut.compiled.setdefault(stage, []).append(node)
        cut.stages[node] = stage
    if any(is_wait(node) for node in eager):
        cut.compiled, cut.eager = spread(cut.compiled, cut.eager, is_ordered)
    return cut


def _is(node: Node, cut: _Cut, eager: set[Node], wanted: bool) -> bool:
    return node in cut.stages and (node in eager) is wanted


def _reads_eager(node: Node, eager: set[Node]) -> bool:
    return node.target is operator.getitem and node.args[0] in eager


def _evaluate(node: Node, constants: dict[Node, Any]) -> Any:
    value = node.meta.get("val")
    if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, (float, torch.SymFloat)):
        return float(value)
    if isinstance(value, (bool, torch.SymBool)):
        return bool(value)
    args = torch.fx.map_arg(node.args, lambda n: constants.get(n, n))
    if node.kwargs or not all(isinstance(a, (int, float, bool)) for a in args):
        raise UnsupportedOp(describe(node, f"{node.target} is not an ATen op"))
    return node.target(*args)  # type: ignore[operator]


class _Slots:
    """A slot for each value, the inputs' first."""

    def __init__(self, inputs: Iterable[Node]) -> None:
        self.indices: dict[Node, int] = {}
        for node in inputs:
            self.of(node)

    def of(self, node: Node) -> int:
        return self.indices.setdefault(node, len(self.indices))

    def replace(self, value: Any) -> Any:
        """``value`` as plain data, with slots for nodes."""
        if isinstance(value, Node):
            return Slot(self.of(value))
        if isinstance(value, (list, tuple)):
            kind = tuple if isinstance(value, tuple) else list
            return kind(self.replace(v) for v in value)
        if isinstance(value, dict):
            return {k: self.replace(v) for k, v in value.items()}
        if isinstance(value, slice):
            return slice(*(self.replace(v) for v in (value.start, value.stop, value.step)))
        if isinstance(value, (torch.SymInt, torch.SymBool)):
            return int(value)
        return value


def build_program(gm: GraphModule, name: str) -> Program:
    """Raises :class:`UnsupportedOp` for what no step can run. The program is loaded."""
    eager = {n for n in gm.graph.nodes if n.op == "call_function" and not in_table(n)}
    for node in eager:
        if not isinstance(node.target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
            raise UnsupportedOp(describe(node, f"{node.target} is not an ATen op"))
        if not may_run_between(node):
            raise UnsupportedOp(describe(node, "it has no lowering"))
    while True:
        try:
            return _build(gm, name, _cut(gm, set(eager)))
        except NotLowered as error:
            if not may_run_between(error.node):
                raise
            eager.add(error.node)


def _build(gm: GraphModule, name: str, cut: _Cut) -> Program:
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    slots = _Slots(placeholders)
    constants = {**cut.constants, **_attributes(gm, name)}
    steps: list[GraphStep | CallStep] = []
    lowerings: list[tuple[GraphStep, Lowering]] = []
    stages = sorted({*cut.compiled, *cut.eager})
    for stage in stages:
        nodes = cut.compiled.get(stage, [])
        inside = set(nodes)
        known = {n: n.meta["val"] for n in nodes if isinstance(n.meta.get("val"), (int, float))}
        cut.constants.update(known)
        constants.update(known)
        outputs = [n for n in nodes if is_tensor(n) and any(u not in inside for u in n.users)]
        if outputs:
            lowering = Lowering(name if len(stages) == 1 else f"{name}_{len(steps)}", cut.constants)
            with timed("lowering"):
                lowering.run(nodes, outputs)
            strides = [tuple(int(s) for s in n.meta["val"].stride()) for n in lowering.inputs]
            inputs = [slots.of(n) for n in lowering.inputs]
            step = GraphStep("", 0, inputs, strides, [slots.of(n) for n in outputs])
            lowerings.append((step, lowering))
            steps.append(step)
        for node in cut.eager.get(stage, []):
            args = [slots.replace(a) for a in node.args]
            steps.append(
                CallStep(_function(node), args, slots.replace(dict(node.kwargs)), slots.of(node))
            )
    # Only a graph that is lowered as a whole is worth compiling.
    for step, lowering in lowerings:
        step.executable = lowering.builder.compile()
        step.ir, step.random_count = lowering.builder.text(), lowering.builder.random_count
    output = next(n for n in gm.graph.nodes if n.op == "output")
    results = [slots.replace(r) for r in output.args[0]]
    known_slots = {slots.of(n): v for n, v in constants.items()}
    return Program(name, len(placeholders), len(slots.indices), known_slots, steps, results)


def _attributes(gm: GraphModule, name: str) -> dict[Node, Any]:
    out: dict[Node, Any] = {}
    for node in gm.graph.nodes:
        if node.op != "get_attr":
            continue
        value: Any = gm
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if isinstance(value, torch.Tensor):
            value = on_device(value)
            node.meta.setdefault("val", value)
        elif isinstance(value, GraphModule):
            value = _branch(value, f"{name}_{node.target}")
        out[node] = value
    return out


def _function(node: Node) -> Callable[..., Any]:
    return INSTEAD.get(getattr(node.target, "_name", ""), node.target)  # type: ignore[arg-type]


def _branch(gm: GraphModule, name: str) -> Branch:
    output = next(n for n in gm.graph.nodes if n.op == "output")
    single = not isinstance(output.args[0], (tuple, list))
    if single:
        output.args = ((output.args[0],),)
    return Branch(build_program(gm, name), single)
