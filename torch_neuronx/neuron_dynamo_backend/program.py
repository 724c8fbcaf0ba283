"""A graph of AOTAutograd as a program: executables, and between them what is run op by op.

Most graphs are one executable. An op without a lowering that the device runs in eager mode all the
same (an engine, a composition, a higher-order op with its branches compiled) cuts the graph: what
comes before it and what needs its result are executables of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .. import _C
from .lower import Lowering, NotLowered, UnsupportedOp, describe, in_table, is_symbolic

_counter = itertools.count()
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
    """Whether the node must keep its place among others of its kind: it draws random numbers."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return True
    return torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable


def is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


@dataclass
class _Cut:
    """Which nodes are compiled together, and which run between the executables.

    Stage k is executable k followed by the eager calls that need it.
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
    return cut


def _is(node: Node, cut: _Cut, eager: set[Node], wanted: bool) -> bool:
    return node in cut.stages and (node in eager) is wanted


def _reads_eager(node: Node, eager: set[Node]) -> bool:
    import operator

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


@dataclass
class _Graph:
    run: Callable[[list[torch.Tensor]], list[torch.Tensor]]
    inputs: list[Node]
    outputs: list[Node]


@dataclass
class _Call:
    node: Node
    function: Callable[..., Any]


class Program:
    """The steps of one graph. Raises :class:`UnsupportedOp` for what no step can run."""

    def __init__(self, gm: GraphModule, name: str) -> None:
        self.gm = gm
        self.name = name
        self.placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.results = next(n for n in gm.graph.nodes if n.op == "output").args[0]
        eager = {n for n in gm.graph.nodes if n.op == "call_function" and not in_table(n)}
        for node in eager:
            self._check_eager(node, "it has no lowering")
        while True:
            try:
                self._build(_cut(gm, set(eager)), eager)
                break
            except NotLowered as error:
                if not may_run_between(error.node):
                    raise
                eager.add(error.node)

    def _check_eager(self, node: Node, reason: str) -> None:
        if not isinstance(node.target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
            raise UnsupportedOp(describe(node, f"{node.target} is not an ATen op"))
        if not may_run_between(node):
            raise UnsupportedOp(describe(node, reason))

    def _build(self, cut: _Cut, eager: set[Node]) -> None:
        self.constants = cut.constants
        self.attributes = self._attributes()
        self.steps: list[_Graph | _Call] = []
        users = {n: list(n.users) for n in cut.stages}
        stages = sorted({*cut.compiled, *cut.eager})
        lowerings = []
        for stage in stages:
            nodes = cut.compiled.get(stage, [])
            inside = set(nodes)
            known = {n: n.meta["val"] for n in nodes if isinstance(n.meta.get("val"), (int, float))}
            cut.constants.update(known)
            outputs = [n for n in nodes if is_tensor(n) and any(u not in inside for u in users[n])]
            if outputs:
                lowering = Lowering(self._step_name(len(stages)), cut.constants)
                lowering.run(nodes, outputs)
                lowerings.append((len(self.steps), lowering))
                self.steps.append(_Graph(lambda _: [], lowering.inputs, outputs))
            for node in cut.eager.get(stage, []):
                self.steps.append(_Call(node, self._function(node)))
        # Only a graph that is lowered as a whole is worth compiling.
        for position, lowering in lowerings:
            step = self.steps[position]
            assert isinstance(step, _Graph)
            step.run = lowering.builder.compile().run

    def _step_name(self, stages: int) -> str:
        return self.name if stages == 1 else f"{self.name}_{len(self.steps)}"

    def _attributes(self) -> dict[Node, Any]:
        out: dict[Node, Any] = {}
        for node in self.gm.graph.nodes:
            if node.op != "get_attr":
                continue
            value: Any = self.gm
            for part in str(node.target).split("."):
                value = getattr(value, part)
            if isinstance(value, torch.Tensor):
                value = on_device(value)
                node.meta.setdefault("val", value)
            elif isinstance(value, GraphModule):
                value = _branch(value, f"{self.name}_{node.target}")
            out[node] = value
        return out

    def _function(self, node: Node) -> Callable[..., Any]:
        return RNG_STATE_OPS.get(getattr(node.target, "_name", ""), node.target)

    def runner(self) -> Callable[[list[Any]], list[Any]]:
        steps = self.steps
        if len(steps) == 1 and isinstance(steps[0], _Graph):
            return self._single(steps[0])
        return self._run

    def _single(self, graph: _Graph) -> Callable[[list[Any]], list[Any]]:
        """Without a table of values: what most graphs are."""
        position = {n: i for i, n in enumerate(self.placeholders)}
        from_inputs = [position[n] for n in graph.inputs if n in position]
        fixed = [self.attributes[n] for n in graph.inputs if n not in position]
        where = {n: i for i, n in enumerate(graph.outputs)}
        if [n for n in graph.inputs if n not in position] != graph.inputs[len(from_inputs) :]:
            return self._run
        results: list[tuple[int, int, Any]] = []  # kind, position, value
        for result in self.results:
            if isinstance(result, Node) and result in where:
                results.append((0, where[result], None))
            elif isinstance(result, Node) and result in position:
                results.append((1, position[result], None))
            elif isinstance(result, Node):
                value = {**self.constants, **self.attributes}[result]
                results.append((2, 0, value))
            else:
                results.append((2, 0, result))
        passes_inputs = any(kind == 1 for kind, _, _ in results)
        execute = graph.run

        def run(inputs: list[Any]) -> list[Any]:
            tensors = [on_device(inputs[i]) for i in from_inputs] + fixed
            given = list(inputs) if passes_inputs else inputs
            inputs.clear()
            outputs = execute(tensors)
            return [
                outputs[i] if kind == 0 else on_device(given[i]) if kind == 1 else value
                for kind, i, value in results
            ]

        return run

    def _run(self, inputs: list[Any]) -> list[Any]:
        values: dict[Node, Any] = dict(zip(self.placeholders, inputs, strict=True))
        inputs.clear()
        values.update(self.constants)
        values.update(self.attributes)
        for node, value in values.items():
            if isinstance(value, torch.Tensor):
                values[node] = on_device(value)
        for step in self.steps:
            if isinstance(step, _Graph):
                tensors = [as_planned(values[n], n.meta["val"]) for n in step.inputs]
                values.update(zip(step.outputs, step.run(tensors), strict=True))
            else:
                args, kwargs = torch.fx.map_arg((step.node.args, step.node.kwargs), values.get)
                values[step.node] = step.function(*args, **kwargs)
        return [values[r] if isinstance(r, Node) else r for r in self.results]


def on_device(tensor: Any) -> Any:
    """Inputs may be CPU tensors, unless the environment says that this is an error."""
    if not isinstance(tensor, torch.Tensor) or tensor.device.type == "neuron":
        return tensor
    if tensor.dim() > 0 and _C.device.env_bool("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY"):
        raise RuntimeError(
            f"a graph compiled for neuron got a tensor of shape {tuple(tensor.shape)} on "
            f"{tensor.device}: move it with .to('neuron'), or unset "
            "TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY"
        )
    return tensor.to("neuron")


def as_planned(tensor: torch.Tensor, planned: torch.Tensor) -> torch.Tensor:
    """An eager op's result with the strides that the executables behind it were compiled for."""
    strides = tuple(int(s) for s in planned.stride())
    if tensor.stride() == strides or tensor.numel() <= 1:
        return tensor
    out = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return out.copy_(tensor)


def _run_and_save_rng_state(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    state = torch.neuron.get_rng_state()
    return state, op(*args, **kwargs)


def _run_with_rng_state(
    state: torch.Tensor, op: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    now = torch.neuron.get_rng_state()
    torch.neuron.set_rng_state(state.cpu())
    try:
        return op(*args, **kwargs)
    finally:
        torch.neuron.set_rng_state(now)


# How a checkpoint draws the same numbers again in its backward; torch's own know other devices.
RNG_STATE_OPS: dict[str, Callable[..., Any]] = {
    "run_and_save_rng_state": _run_and_save_rng_state,
    "run_with_rng_state": _run_with_rng_state,
}


class _Branch(torch.nn.Module):
    """A compiled branch of a higher-order op, which calls it with tensors."""

    def __init__(self, run: Callable[[list[Any]], list[Any]], single: bool) -> None:
        super().__init__()
        self.run = run
        self.single = single

    def forward(self, *inputs: Any) -> Any:
        out = self.run(list(inputs))
        return out[0] if self.single else tuple(out)


def _branch(gm: GraphModule, name: str) -> torch.nn.Module:
    output = next(n for n in gm.graph.nodes if n.op == "output")
    single = not isinstance(output.args[0], (tuple, list))
    if single:
        output.args = ((output.args[0],),)
    return _Branch(Program(gm, name).runner(), single)


def compile_graph(
    gm: GraphModule, example_inputs: Sequence[Any], *, name: str
) -> Callable[..., Any]:
    """Compiles one graph of AOTAutograd; returns what AOTAutograd calls with a list of inputs."""
    name = f"{name}_{next(_counter)}"
    _C.compiler.write_stage(name, "0_fx.py", gm.print_readable(print_output=False))
    program = Program(gm, name)
    run = program.runner()

    def boxed(inputs: list[Any]) -> list[Any]:
        return run(inputs)

    # AOTAutograd then passes one list, which may be emptied.
    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed
