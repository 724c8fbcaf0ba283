"""A compiled graph as steps: executables, and between them ops that are run one by one.

A program is plain data (text of the IR, names of ops, positions of values), so that it can be kept
on disk and loaded by another process, which then neither traces nor lowers anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import _C
from .errors import NEFFExecutionError


class NotPortable(Exception):
    """The program holds what another process cannot load."""


@dataclass(frozen=True)
class Slot:
    """Where a value lies while the program runs."""

    index: int


@dataclass
class GraphStep:
    """One executable: inputs and outputs by slot, inputs with the strides it was compiled for."""

    ir: str
    random_count: int
    inputs: list[int]
    strides: list[tuple[int, ...]]
    outputs: list[int]
    executable: Any = None  # _C.graph.CompiledGraph

    def load(self) -> None:
        if self.executable is None:
            self.executable = _C.graph.compile_text(self.ir, self.random_count)

    def run(self, values: list[Any]) -> None:
        tensors = [
            as_planned(values[slot], strides)
            for slot, strides in zip(self.inputs, self.strides, strict=True)
        ]
        for slot, value in zip(self.outputs, self.executable.run(tensors), strict=True):
            values[slot] = value

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "executable": None}


@dataclass
class CallStep:
    """An op as eager mode runs it. Arguments are values or :class:`Slot`, also in lists."""

    function: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    output: int

    def load(self) -> None:
        pass

    def run(self, values: list[Any]) -> None:
        args, kwargs = _filled(self.args, values), _filled(self.kwargs, values)
        values[self.output] = self.function(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "function": _portable_function(self.function)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self.function, tuple):
            self.function = _function_from(*self.function)


def _filled(value: Any, values: list[Any]) -> Any:
    if isinstance(value, Slot):
        return values[value.index]
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(v, values) for v in value)
    if isinstance(value, dict):
        return {k: _filled(v, values) for k, v in value.items()}
    return value


def _portable_function(function: Any) -> Any:
    if isinstance(function, torch._ops.OpOverload):
        return ("op", function._schema.name, function._overloadname)
    if isinstance(function, torch._ops.HigherOrderOperator):
        return ("higher order", function.namespace, function._name)
    return function


def _function_from(kind: str, name: str, rest: str) -> Callable[..., Any]:
    if kind == "op":
        namespace, op = name.split("::")
        return getattr(getattr(getattr(torch.ops, namespace), op), rest)
    return getattr(getattr(torch.ops, name), rest)


@dataclass
class Program:
    """Slots 0..num_inputs-1 hold the inputs; ``constants``: what is known before a run."""

    name: str
    num_inputs: int
    num_slots: int
    constants: dict[int, Any]
    steps: list[GraphStep | CallStep]
    results: list[Any]  # Slot or value
    # Slots that no step after the step of this position reads, so that their memory is free.
    last_used: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.last_used = _last_uses(self)

    def load(self) -> None:
        """Makes it ready to run: compiles the IR, or finds it compiled. Idempotent."""
        for step in self.steps:
            step.load()
        for value in self.constants.values():
            if isinstance(value, Branch):
                value.program.load()

    def graphs(self) -> list[GraphStep]:
        """The executables, those of branches too."""
        out = [step for step in self.steps if isinstance(step, GraphStep)]
        for value in self.constants.values():
            if isinstance(value, Branch):
                out += value.program.graphs()
        return out

    def __getstate__(self) -> dict[str, Any]:
        constants = {slot: _portable_constant(v) for slot, v in self.constants.items()}
        return {**self.__dict__, "constants": constants}

    def runner(self) -> Callable[[list[Any]], list[Any]]:
        """What is called with a list of inputs, which it empties. The program must be loaded."""
        if len(self.steps) == 1 and isinstance(self.steps[0], GraphStep):
            return self._single(self.steps[0])
        return self._run

    def _single(self, step: GraphStep) -> Callable[[list[Any]], list[Any]]:
        """Without a table of values: what most graphs are."""
        from_inputs = [slot for slot in step.inputs if slot < self.num_inputs]
        fixed = [on_device(self.constants[s]) for s in step.inputs[len(from_inputs) :]]
        if any(slot >= self.num_inputs for slot in step.inputs[: len(from_inputs)]):
            return self._run
        where = {slot: i for i, slot in enumerate(step.outputs)}
        results: list[tuple[int, int, Any]] = []  # kind, position, value
        for result in self.results:
            if not isinstance(result, Slot):
                results.append((2, 0, result))
            elif result.index in where:
                results.append((0, where[result.index], None))
            elif result.index in self.constants:
                results.append((2, 0, on_device(self.constants[result.index])))
            else:
                results.append((1, result.index, None))
        passes_inputs = any(kind == 1 for kind, _, _ in results)
        execute = step.executable.run

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
        values: list[Any] = [None] * self.num_slots
        for slot, value in enumerate(inputs):
            values[slot] = on_device(value)
        inputs.clear()
        for slot, value in self.constants.items():
            values[slot] = on_device(value)
        for step, unused in zip(self.steps, self.last_used, strict=True):
            step.run(values)
            for slot in unused:
                values[slot] = None
        return [values[r.index] if isinstance(r, Slot) else r for r in self.results]


def _last_uses(program: Program) -> list[list[int]]:
    needed = {r.index for r in program.results if isinstance(r, Slot)}
    out: list[list[int]] = []
    for step in reversed(program.steps):
        read = step.inputs if isinstance(step, GraphStep) else _slots([step.args, step.kwargs])
        written = step.outputs if isinstance(step, GraphStep) else [step.output]
        out.append([slot for slot in {*read, *written} if slot not in needed])
        needed.update(read)
    return out[::-1]


def _slots(value: Any) -> list[int]:
    if isinstance(value, Slot):
        return [value.index]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [slot for item in value for slot in _slots(item)]
    return []


# A larger constant tensor is a weight, which does not belong in a cache of compiled code.
_MAX_CONSTANT_BYTES = 1 << 20


def _portable_constant(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise NotPortable(f"a constant of type {type(value).__name__}")
    if value.nbytes > _MAX_CONSTANT_BYTES:
        raise NotPortable(f"a constant of {value.nbytes} bytes")
    return value.detach().cpu()


class Branch(torch.nn.Module):
    """A compiled branch of a higher-order op, which calls it with tensors."""

    def __init__(self, program: Program, single: bool) -> None:
        super().__init__()
        self.program = program
        self.single = single

    def forward(self, *inputs: Any) -> Any:
        out = self.program.runner()(list(inputs))
        return out[0] if self.single else tuple(out)


def on_device(tensor: Any) -> Any:
    """Inputs may be CPU tensors, unless the environment says that this is an error."""
    if not isinstance(tensor, torch.Tensor) or tensor.device.type == "neuron":
        return tensor
    if tensor.dim() > 0 and _C.device.env_bool("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY"):
        raise NEFFExecutionError(
            f"a graph compiled for neuron got a tensor of shape {tuple(tensor.shape)} on "
            f"{tensor.device}: move it with .to('neuron'), or unset "
            "TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY"
        )
    return tensor.to("neuron")


def as_planned(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """An eager op's result with the strides that the executables behind it were compiled for."""
    if tensor.stride() == strides or tensor.numel() <= 1:
        return tensor
    out = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return out.copy_(tensor)


def run_and_save_rng_state(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    state = torch.neuron.get_rng_state()
    return state, op(*args, **kwargs)


def run_with_rng_state(
    state: torch.Tensor, op: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    now = torch.neuron.get_rng_state()
    torch.neuron.set_rng_state(state.cpu())
    try:
        return op(*args, **kwargs)
    finally:
        torch.neuron.set_rng_state(now)


# Called instead of the op of this name. The first two: how a checkpoint draws the same numbers
# again in its backward; torch's own know other devices.
INSTEAD: dict[str, Callable[..., Any]] = {
    "run_and_save_rng_state": run_and_save_rng_state,
    "run_with_rng_state": run_with_rng_state,
}
