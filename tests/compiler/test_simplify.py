"""Canonicalisation, constant folding and common subexpressions: input text -> expected text."""

# Tables read best with one case a line.
# ruff: noqa: E501

from __future__ import annotations

import pytest
import torch

from torch_neuronx import _C

CASES = {
    "nothing to do": (
        ["%0 = parameter {index=0, strides=[1]} : f32[4]", "%1 = exponential(%0) : f32[4]"],
        ["%0 = parameter {index=0, strides=[1]} : f32[4]", "%1 = exponential(%0) : f32[4]"],
    ),
    "equal operations": (
        [
            "%0 = parameter {index=0, strides=[1]} : f32[4]",
            "%1 = exponential(%0) : f32[4]",
            "%2 = exponential(%0) : f32[4]",
            "%3 = add(%1, %2) : f32[4]",
        ],
        [
            "%0 = parameter {index=0, strides=[1]} : f32[4]",
            "%1 = exponential(%0) : f32[4]",
            "%2 = add(%1, %1) : f32[4]",
        ],
    ),
    "dead code": (
        [
            "%0 = parameter {index=0, strides=[1]} : f32[4]",
            "%1 = exponential(%0) : f32[4]",
            "%2 = log(%1) : f32[4]",
            "%3 = abs(%0) : f32[4]",
        ],
        ["%0 = parameter {index=0, strides=[1]} : f32[4]", "%1 = abs(%0) : f32[4]"],
    ),
    "constants": (
        [
            "%0 = constant {value=3.0} : f32[]",
            "%1 = constant {value=0.5} : f32[]",
            "%2 = multiply(%0, %1) : f32[]",
            "%3 = subtract(%2, %1) : f32[]",
            "%4 = broadcast_in_dim(%3) {dims=[]} : f32[4]",
            "%5 = parameter {index=0, strides=[1]} : f32[4]",
            "%6 = multiply(%5, %4) : f32[4]",
            "%7 = add(%6, %4) : f32[4]",
        ],
        [
            "%0 = constant {value=1.0} : f32[4]",
            "%1 = parameter {index=0, strides=[1]} : f32[4]",
            "%2 = add(%1, %0) : f32[4]",
        ],
    ),
    "adding 0 is not nothing: -0 becomes 0": (
        [
            "%0 = parameter {index=0, strides=[1]} : f32[4]",
            "%1 = constant {value=0.0} : f32[4]",
            "%2 = add(%0, %1) : f32[4]",
        ],
        [
            "%0 = parameter {index=0, strides=[1]} : f32[4]",
            "%1 = constant {value=0.0} : f32[4]",
            "%2 = add(%0, %1) : f32[4]",
        ],
    ),
    "there and back": (
        [
            "%0 = parameter {index=0, strides=[1]} : bf16[4]",
            "%1 = convert(%0) : f32[4]",
            "%2 = convert(%1) : bf16[4]",
            "%3 = negate(%2) : bf16[4]",
            "%4 = negate(%3) : bf16[4]",
            "%5 = abs(%4) : bf16[4]",
        ],
        ["%0 = parameter {index=0, strides=[1]} : bf16[4]", "%1 = abs(%0) : bf16[4]"],
    ),
    "not back: f32 does not fit bf16": (
        [
            "%0 = parameter {index=0, strides=[1]} : f32[4]",
            "%1 = convert(%0) : bf16[4]",
            "%2 = convert(%1) : f32[4]",
        ],
        [
            "%0 = parameter {index=0, strides=[1]} : f32[4]",
            "%1 = convert(%0) : bf16[4]",
            "%2 = convert(%1) : f32[4]",
        ],
    ),
    "transposes": (
        [
            "%0 = parameter {index=0, strides=[12, 4, 1]} : f32[2,3,4]",
            "%1 = transpose(%0) {permutation=[1, 2, 0]} : f32[3,4,2]",
            "%2 = transpose(%1) {permutation=[1, 0, 2]} : f32[4,3,2]",
            "%3 = transpose(%2) {permutation=[2, 1, 0]} : f32[2,3,4]",
            "%4 = abs(%3) : f32[2,3,4]",
            "%5 = transpose(%2) {permutation=[0, 2, 1]} : f32[4,2,3]",
            "%6 = transpose(%4) {permutation=[2, 0, 1]} : f32[4,2,3]",
            "%7 = add(%5, %6) : f32[4,2,3]",
        ],
        [
            "%0 = parameter {index=0, strides=[12, 4, 1]} : f32[2,3,4]",
            "%1 = abs(%0) : f32[2,3,4]",
            "%2 = transpose(%0) {permutation=[2, 0, 1]} : f32[4,2,3]",
            "%3 = transpose(%1) {permutation=[2, 0, 1]} : f32[4,2,3]",
            "%4 = add(%2, %3) : f32[4,2,3]",
        ],
    ),
    "slices": (
        [
            "%0 = parameter {index=0, strides=[1]} : f32[40]",
            "%1 = slice(%0) {limit=[40], start=[4], stride=[2]} : f32[18]",
            "%2 = slice(%1) {limit=[17], start=[1], stride=[3]} : f32[6]",
            "%3 = slice(%2) {limit=[6], start=[0], stride=[1]} : f32[6]",
        ],
        [
            "%0 = parameter {index=0, strides=[1]} : f32[40]",
            "%1 = slice(%0) {limit=[37], start=[6], stride=[6]} : f32[6]",
        ],
    ),
    "broadcasts and reshapes": (
        [
            "%0 = parameter {index=0, strides=[1]} : f32[3]",
            "%1 = reshape(%0) : f32[3,1]",
            "%2 = reshape(%1) : f32[1,3]",
            "%3 = broadcast_in_dim(%2) {dims=[0, 1]} : f32[2,3]",
            "%4 = broadcast_in_dim(%3) {dims=[1, 2]} : f32[5,2,3]",
        ],
        [
            "%0 = parameter {index=0, strides=[1]} : f32[3]",
            "%1 = reshape(%0) : f32[1,3]",
            "%2 = broadcast_in_dim(%1) {dims=[1, 2]} : f32[5,2,3]",
        ],
    ),
}


def graph(lines):
    """The last value is the output, dense."""
    name, shape = lines[-1].split(" = ")[0], lines[-1].rsplit("[", 1)[1].rstrip("]")
    dims = [int(d) for d in shape.split(",") if d]
    strides = list(torch.empty(dims).stride()) if dims else []
    body = "\n".join(f"  {line}" for line in lines)
    return f"graph @case {{\n{body}\n  return {name} {{strides={strides}}}\n}}\n"


@pytest.mark.parametrize("name", CASES)
def test_text(name):
    before, after = CASES[name]
    assert _C.compiler.simplify(graph(before)) == graph(after)


@pytest.mark.parametrize("name", CASES)
def test_a_simple_graph_stays(name):
    once = _C.compiler.simplify(graph(CASES[name][0]))
    assert _C.compiler.simplify(once) == once


def test_parameters_scalars_and_aliases_stay():
    text = """\
graph @keep {
  %0 = parameter {index=0, strides=[1]} : f32[4]
  %1 = parameter {index=1, strides=[1]} : f32[4]
  %2 = scalar {index=0} : f64[]
  %3 = scalar {index=1} : f64[]
  %4 = abs(%1) : f32[4]
  return %4 {strides=[1]} aliases 1, %0 {strides=[1]}
}
"""
    assert _C.compiler.simplify(text) == text
