"""Collectives of a graph overlap with its compute: waits go late, and work that can wait follows.

A stage is an executable and the eager calls after it (partition.py). Here each stage becomes two:
the executable with what the collectives need, their issue, then an executable with heavy work that
neither needs their results nor is needed by them, and only then their waits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx import Node

_HEAVY = ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "convolution")

Stages = dict[int, list[Node]]


def is_wait(node: Node) -> bool:
    return node.target == torch.ops._c10d_functional.wait_tensor.default


def is_heavy(node: Node) -> bool:
    """Whether it takes long enough to be worth a kernel of its own beside a collective."""
    name = getattr(getattr(node.target, "_schema", None), "name", "").partition("::")[2]
    return name in _HEAVY or name.startswith("_scaled_dot_product")


def spread(
    compiled: Stages, eager: Stages, is_ordered: Callable[[Node], bool]
) -> tuple[Stages, Stages]:
    """The stages, numbered 2k and 2k + 1 for stage k; every rank gets the same order."""
    compiled_out: Stages = {}
    eager_out: Stages = {}
    for stage in sorted({*compiled, *eager}):
        first, late = _split_calls(eager.get(stage, []), is_ordered)
        before, beside = _split_work(compiled.get(stage, []), first if late else [], is_ordered)
        for number, nodes in ((2 * stage, before), (2 * stage + 1, beside)):
            if nodes:
                compiled_out[number] = nodes
        for number, nodes in ((2 * stage, first), (2 * stage + 1, late)):
            if nodes:
                eager_out[number] = nodes
    return compiled_out, eager_out


def _split_calls(
    calls: list[Node], is_ordered: Callable[[Node], bool]
) -> tuple[list[Node], list[Node]]:
    """What may be issued before the first wait, and the rest; ordered calls keep their order."""
    first: list[Node] = []
    late: list[Node] = []
    for node in calls:
        behind = any(n in late for n in node.all_input_nodes)
        follows = is_ordered(node) and any(is_ordered(n) and not is_wait(n) for n in late)
        (late if is_wait(node) or behind or follows else first).append(node)
    return first, late


def _split_work(
    nodes: list[Node], calls: list[Node], is_ordered: Callable[[Node], bool]
) -> tuple[list[Node], list[Node]]:
    """What the calls need and what is light, and heavy work that runs while they do."""
    needed: set[Node] = set()
    for node in reversed([*nodes, *calls]):
        if node in calls or any(user in needed for user in node.users):
            needed.add(node)
    inside = set(nodes)
    beside: set[Node] = set()
    for node in nodes:
        if node not in needed and (
            is_heavy(node) or any(n in beside for n in node.all_input_nodes)
        ):
            beside.add(node)
    # What is computed only for that goes with it, to be fused.
    for node in reversed(nodes):
        users = [user for user in node.users if user in inside]
        if node not in needed and users and all(user in beside for user in users):
            beside.add(node)
    # Random numbers are drawn in the order of the executables.
    if not calls or any(is_ordered(node) for node in beside):
        return nodes, []
    return [n for n in nodes if n not in beside], [n for n in nodes if n in beside]
