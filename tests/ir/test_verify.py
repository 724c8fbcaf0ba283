"""Every rule of the verifier: a graph that keeps it and one that breaks it.

A case is written as operations separated by ";", numbered from %0; the last one is the output.
"""

# Tables read best with one case a line.
# ruff: noqa: E501

from __future__ import annotations

import pytest
import torch  # noqa: F401 (it loads the extension)

from torch_neuronx import _C


def graph(case: str) -> str:
    lines, parameters = [], 0
    for i, line in enumerate(part.strip() for part in case.split(";")):
        if line.startswith("p "):  # "p f32[2,3]": a contiguous parameter of this type
            kind = line[2:]
            dims = [int(d) for d in kind[kind.index("[") + 1 : -1].split(",") if d]
            strides = [1] * len(dims)
            for d in range(len(dims) - 2, -1, -1):
                strides[d] = strides[d + 1] * max(1, dims[d + 1])
            line = f"parameter {{index={parameters}, strides={strides}}} : {kind}"
            parameters += 1
        lines.append(f"  %{i} = {line}")
    rank = len([d for d in lines[-1][lines[-1].rindex("[") + 1 : -1].split(",") if d])
    lines.append(f"  return %{len(lines) - 1} {{strides={[1] * rank}}}")
    return "graph @case {\n" + "\n".join(lines) + "\n}\n"


# fmt: off
UNARY = [
    "abs", "negate", "sign", "floor", "ceil", "trunc", "round_nearest_even", "sqrt", "rsqrt",
    "exponential", "exp2", "exponential_minus_one", "log", "log2", "log10", "log_plus_one",
    "sine", "cosine", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
    "atanh", "logistic", "erf", "erfc", "erf_inv", "lgamma", "digamma",
]
BINARY = [
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power",
    "atan2", "next_after",
]
BITWISE = [
    "and", "or", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical",
]
# fmt: on


CONV = "stride=[1, 1], padding=[0, 0], dilation=[1, 1], output_padding=[0, 0]"


def conv(
    x: str,
    w: str,
    result: str,
    *,
    bias: str = "",
    transposed=0,
    groups=1,
    stride=(1, 1),
    padding=(0, 0),
) -> str:
    operands = "%0, %1, %2" if bias else "%0, %1"
    attributes = (
        f"stride={list(stride)}, padding={list(padding)}, dilation=[1, 1], output_padding=[0, 0], "
        f"transposed={transposed}, groups={groups}"
    )
    parameters = f"p {x}; p {w}; " + (f"p {bias}; " if bias else "")
    return f"{parameters}convolution({operands}) {{{attributes}}} : {result}"


MATMUL = "{lhs_batch=[], lhs_contract=[1], rhs_batch=[], rhs_contract=[0]}"
BATCHED = "{lhs_batch=[0], lhs_contract=[2], rhs_batch=[0], rhs_contract=[1]}"
QKV = "p f32[2,4,5,8]; p f32[2,2,7,8]; p f32[2,2,7,3]"
CAUSAL = "{is_causal=0, scale=0.5}"
DROPOUT = "{dropout=0.5, is_causal=0, scale=0.5}"
GRAD = (
    "p f32[2,4,5,3]; p f32[2,4,5,3]; p f32[2,4,5]; p f32[2,4,5,8]; p f32[2,2,7,8]; p f32[2,2,7,3]"
)
OF_Q = '{is_causal=0, of="q", scale=0.5}'

# fmt: off
GOOD = [
    # sources
    "p f32[2,0,3]",
    "parameter {index=0, strides=[0, 1]} : f32[2,3]",
    "scalar {index=0} : f64[]",
    "scalar {index=0} : i64[]; scalar {index=1} : b8[]",
    "constant {value=0.5} : bf16[2]",
    "constant {value=255} : u8[]",
    "constant {value=-1} : u64[]",
    "constant {value=1} : b8[]",
    "shape_constant {value=5} : i64[]",
    "iota {dim=1} : i64[2,3]",
    # conversions
    "p f32[4]; convert(%0) : i8[4]",
    "p f32[4]; convert(%0) : c64[4]",
    "p f32[4]; bitcast_convert(%0) : i32[4]",
    # elementwise
    *(f"p f32[4]; {op}(%0) : f32[4]" for op in UNARY),
    "p i8[4]; not(%0) : i8[4]",
    "p b8[4]; not(%0) : b8[4]",
    "p f16[4]; is_nan(%0) : b8[4]",
    *(f"p f32[4]; p f32[4]; {op}(%0, %1) : f32[4]" for op in BINARY),
    *(f"p i32[4]; p i32[4]; {op}(%0, %1) : i32[4]" for op in BITWISE),
    "p b8[4]; p b8[4]; add(%0, %1) : b8[4]",
    "p c64[4]; p c64[4]; divide(%0, %1) : c64[4]",
    'p f32[4]; p f32[4]; compare(%0, %1) {direction="LT"} : b8[4]',
    'p c64[4]; p c64[4]; compare(%0, %1) {direction="EQ"} : b8[4]',
    "p b8[4]; p f32[4]; p f32[4]; select(%0, %1, %2) : f32[4]",
    "p f32[4]; p f32[4]; p f32[4]; fma(%0, %1, %2) : f32[4]",
    # shape
    "p f32[]; broadcast_in_dim(%0) {dims=[]} : f32[2,3]",
    "p f32[1,3]; broadcast_in_dim(%0) {dims=[0, 2]} : f32[2,5,3]",
    "p f32[2,6]; reshape(%0) : f32[3,4]",
    "p f32[2,0]; reshape(%0) : f32[0,5]",
    "p f32[2,3,4]; transpose(%0) {permutation=[2, 0, 1]} : f32[4,2,3]",
    "p f32[10]; slice(%0) {start=[1], limit=[10], stride=[4]} : f32[3]",
    "p f32[4]; slice(%0) {start=[4], limit=[4], stride=[1]} : f32[0]",
    "p f32[3]; p f32[]; pad(%0, %1) {low=[1], high=[-2], interior=[2]} : f32[6]",
    "p f32[0]; p f32[]; pad(%0, %1) {low=[1], high=[2], interior=[2]} : f32[3]",
    "p f32[2,3]; p f32[2,4]; concatenate(%0, %1) {dim=1} : f32[2,7]",
    "p f32[2,3]; reverse(%0) {dims=[1]} : f32[2,3]",
    # indirect
    "p f32[9,5]; p i64[2,3]; take(%0, %1) {dim=0} : f32[2,3,5]",
    "p f32[4,9]; p i32[]; take(%0, %1) {dim=1, wrap=1} : f32[4]",
    "p f32[4,9]; p i64[3,20]; take_along(%0, %1) {dim=1} : f32[3,20]",
    "p f32[4,9,5]; p i64[2]; p i64[2]; take_nd(%0, %1, %2) : f32[2,5]",
    'p f32[4,9]; p i64[4,20]; p f32[4,20]; scatter(%0, %1, %2) {dim=1, mode="add"} : f32[4,9]',
    'p f32[4,9]; p i64[2]; p f32[2,9]; scatter_nd(%0, %1, %2) {mode="set"} : f32[4,9]',
    # reductions and order
    'p f32[2,3,4]; reduce(%0) {dims=[2, 0], kind="add"} : f32[3]',
    'p b8[2,3]; reduce(%0) {dims=[0, 1], kind="and"} : b8[]',
    'p f32[2,3]; reduce(%0) {dims=[1], kind="argmax"} : i64[2]',
    'p f32[2,3]; cumulative(%0) {dim=1, kind="logaddexp"} : f32[2,3]',
    "p f32[2,3]; sort(%0) {dim=1, descending=0} : f32[2,3]",
    "p f32[2,3]; argsort(%0) {dim=0, descending=1} : i64[2,3]",
    # engines
    f"p f32[2,3]; p f32[3,4]; dot_general(%0, %1) {MATMUL} : f32[2,4]",
    f"p bf16[2,3]; p bf16[3,4]; dot_general(%0, %1) {MATMUL} : f32[2,4]",
    f"p f32[5,2,3]; p f32[5,3,4]; dot_general(%0, %1) {BATCHED} : f32[5,2,4]",
    "p f32[2,3]; p f32[3,4]; p f32[2,4]; dot_general(%0, %1, %2) "
    "{alpha=0.5, beta=2.0, lhs_batch=[], lhs_contract=[1], rhs_batch=[], rhs_contract=[0]} : f32[2,4]",
    f"p f32[1,4,8,8]; p f32[6,4,3,3]; convolution(%0, %1) {{{CONV}, transposed=0, groups=1}} : f32[1,6,6,6]",
    f"p i64[1,4,8,8]; p i64[6,4,3,3]; convolution(%0, %1) {{{CONV}, transposed=0, groups=1}} : i64[1,6,6,6]",
    "p f32[1,4,8,8]; p f32[6,2,3,3]; p f32[6]; "
    f"convolution(%0, %1, %2) {{{CONV}, transposed=0, groups=2}} : f32[1,6,6,6]",
    "p f32[1,4,8]; p f32[6,4,3]; convolution(%0, %1) "
    "{stride=[2], padding=[1], dilation=[2], output_padding=[0], transposed=0, groups=1} : f32[1,6,3]",
    "p f32[1,4,8]; p f32[4,3,3]; convolution(%0, %1) "
    "{stride=[2], padding=[1], dilation=[1], output_padding=[1], transposed=1, groups=2} : f32[1,6,16]",
    f"{QKV}; attention(%0, %1, %2) {CAUSAL} : f32[2,4,5,3]",
    f"{QKV}; p b8[2,1,5,7]; attention(%0, %1, %2, %3) {CAUSAL} : f32[2,4,5,3]",
    f"{QKV}; p f32[5,7]; attention(%0, %1, %2, %3) {CAUSAL} : f32[2,4,5,3]",
    "p f32[2,4,9]; p f32[2,6,8]; convolution_weight_grad(%0, %1) {dilation=[1], groups=2, padding=[1], stride=[1]} : f32[6,2,4]",
    f"{QKV}; p i64[2]; attention(%0, %1, %2, %3) {DROPOUT} : f32[2,4,5,3]",
    f"{QKV}; attention_lse(%0, %1, %2) {CAUSAL} : f32[2,4,5]",
    f"{QKV}; p f32[7]; attention_lse(%0, %1, %2, %3) {CAUSAL} : f32[2,4,5]",
    f"{GRAD}; attention_grad(%0, %1, %2, %3, %4, %5) {OF_Q} : f32[2,4,5,8]",
    "p f32[4,9]; nonzero(%0) : i64[36,2]",
    "scalar {index=0} : i64[]; scalar {index=1} : i64[]; rng_bits(%0, %1) {word=3} : u32[2,3]",
]

BAD = [
    # of every operation
    ("p f32[4]; add(%0) : f32[4]", "it takes 2 operands"),
    ("p f32[4]; abs(%0, %0) : f32[4]", "it takes 1 operands"),
    ("iota : i64[2]", "the attribute 'dim' is missing"),
    ("iota {dim=0, dims=[0]} : i64[2]", "it takes the attributes 'dim' and no others"),
    ("p f32[4]; abs(%0) {dim=0} : f32[4]", "it takes the attributes '' and no others"),
    ("iota {dim=0.0} : i64[2]", "the attribute 'dim' must be an int"),
    ("p f32[4]; reverse(%0) {dims=0} : f32[4]", "the attribute 'dims' must be a list"),
    ("p f32[4]; compare(%0, %0) {direction=0} : b8[4]", "the attribute 'direction' must be a string"),
    ('constant {value="x"} : f32[]', "the attribute 'value' must be an int or a double"),
    (f"{QKV}; attention(%0, %1, %2) {{is_causal=0, scale=1}} : f32[2,4,5,3]", "'scale' must be a double"),
    ("iota {dim=0} : i64[-1]", "sizes must not be negative"),
    ("iota {dim=0} : i64[4294967296,4294967296]", "its bytes must fit 63 bits"),
    # sources
    ("parameter {index=0, strides=[1]} : f32[2,3]", "strides must have 2 entries"),
    ("parameter {index=0, strides=[-1]} : f32[2]", "strides must not be negative"),
    ("scalar {index=0} : f32[]", "its type must be f64[], i64[] or b8[]"),
    ("scalar {index=0} : f64[1]", "its type must be f64[], i64[] or b8[]"),
    ("constant {value=1} : f32[]", "value must be a double"),
    ("constant {value=1.0} : i32[]", "value must be an int"),
    ("constant {value=256} : u8[]", "value does not fit the dtype"),
    ("constant {value=-129} : i8[]", "value does not fit the dtype"),
    ("constant {value=2} : b8[]", "value does not fit the dtype"),
    ("shape_constant {value=5.0} : i64[]", "value must be an int"),
    ("shape_constant {value=5} : i32[]", "its type must be i64[]"),
    ("iota {dim=1} : i64[2]", "1 is not a dimension of rank 1"),
    ("iota {dim=0} : i64[]", "0 is not a dimension of rank 0"),
    ("iota {dim=0} : b8[2]", "allowed: integers, floats"),
    # conversions
    ("p f32[4]; convert(%0) : i8[5]", "its type must be i8[4]"),
    ("p c64[4]; convert(%0) : f32[4]", "a complex number becomes no real one"),
    ("p f32[4]; bitcast_convert(%0) : i64[4]", "both dtypes must have the same size"),
    ("p f32[4]; bitcast_convert(%0) : i32[2,2]", "its type must be i32[4]"),
    # elementwise
    ("p f32[4]; abs(%0) : f32[5]", "its type must be f32[4]"),
    ("p f32[4]; abs(%0) : f64[4]", "its type must be f32[4]"),
    ("p i32[4]; exponential(%0) : i32[4]", "allowed: floats, complex numbers"),
    ("p c64[4]; abs(%0) : c64[4]", "allowed: b8, integers, floats"),
    ("p c64[4]; erf(%0) : c64[4]", "allowed: floats"),
    ("p f32[4]; not(%0) : f32[4]", "allowed: b8, integers"),
    ("p b8[4]; negate(%0) : b8[4]", "allowed: integers, floats, complex numbers"),
    ("p i32[4]; is_nan(%0) : b8[4]", "allowed: floats, complex numbers"),
    ("p f32[4]; is_nan(%0) : f32[4]", "its type must be b8[4]"),
    ("p f32[4]; p f32[1]; add(%0, %1) : f32[4]", "its type must be f32[1]"),
    ("p f32[4]; p bf16[4]; add(%0, %1) : f32[4]", "its type must be bf16[4]"),
    ("p b8[4]; subtract(%0, %0) : b8[4]", "allowed: integers, floats, complex numbers"),
    ("p b8[4]; remainder(%0, %0) : b8[4]", "allowed: integers, floats"),
    ("p c64[4]; maximum(%0, %0) : c64[4]", "allowed: b8, integers, floats"),
    ("p f32[4]; xor(%0, %0) : f32[4]", "allowed: b8, integers"),
    ("p b8[4]; shift_left(%0, %0) : b8[4]", "allowed: integers"),
    ("p i32[4]; atan2(%0, %0) : i32[4]", "allowed: floats"),
    ('p f32[4]; compare(%0, %0) {direction="LQ"} : b8[4]', "direction must be one of EQ NE LT LE GT GE"),
    ('p f32[4]; compare(%0, %0) {direction="LT"} : f32[4]', "its type must be b8[4]"),
    ('p f32[4]; p i32[4]; compare(%0, %1) {direction="LT"} : b8[4]', "its operands must have one type"),
    ('p c64[4]; compare(%0, %0) {direction="LT"} : b8[4]', "allowed: b8, integers, floats"),
    ("p b8[]; p f32[4]; select(%0, %1, %1) : f32[4]", "its condition must be b8 of the result's shape, is b8[]"),
    ("p u8[4]; p f32[4]; select(%0, %1, %1) : f32[4]", "its condition must be b8"),
    ("p b8[4]; p f32[4]; p f64[4]; select(%0, %1, %2) : f32[4]", "its type must be f64[4]"),
    ("p i32[4]; fma(%0, %0, %0) : i32[4]", "allowed: floats"),
    # shape
    ("p f32[3]; broadcast_in_dim(%0) {dims=[]} : f32[2,3]", "dims must have 1 entries"),
    ("p f32[3]; broadcast_in_dim(%0) {dims=[2]} : f32[2,3]", "2 is not a dimension of rank 2"),
    ("p f32[3]; broadcast_in_dim(%0) {dims=[-1]} : f32[2,3]", "-1 is not a dimension of rank 2"),
    ("p f32[1,1]; broadcast_in_dim(%0) {dims=[1, 1]} : f32[2,3]", "dims: 1 is named twice"),
    ("p f32[3]; broadcast_in_dim(%0) {dims=[0]} : f32[2,3]", "of size 3 cannot become size 2"),
    ("p f32[3]; broadcast_in_dim(%0) {dims=[1]} : f64[2,3]", "the dtype must stay f32"),
    ("p f32[2,6]; reshape(%0) : f32[3,5]", "the number of elements of f32[2,6]"),
    ("p f32[2,6]; reshape(%0) : i32[3,4]", "the number of elements of f32[2,6]"),
    ("p f32[2,3]; transpose(%0) {permutation=[0]} : f32[2,3]", "permutation must have 2 entries"),
    ("p f32[2,3]; transpose(%0) {permutation=[1, 1]} : f32[3,3]", "permutation: 1 is named twice"),
    ("p f32[2,3]; transpose(%0) {permutation=[1, 0]} : f32[2,3]", "its type must be f32[3,2]"),
    ("p f32[10]; slice(%0) {start=[1, 2], limit=[9], stride=[1]} : f32[8]", "start must have 1 entries"),
    ("p f32[10]; slice(%0) {start=[1], limit=[11], stride=[1]} : f32[10]", "[1, 11) is no range within size 10"),
    ("p f32[10]; slice(%0) {start=[-1], limit=[9], stride=[1]} : f32[10]", "is no range within size 10"),
    ("p f32[10]; slice(%0) {start=[5], limit=[4], stride=[1]} : f32[0]", "is no range within size 10"),
    ("p f32[10]; slice(%0) {start=[1], limit=[9], stride=[0]} : f32[8]", "stride must be at least 1"),
    ("p f32[10]; slice(%0) {start=[1], limit=[10], stride=[4]} : f32[2]", "its type must be f32[3]"),
    ("p f32[3]; p f32[]; pad(%0, %1) {low=[1, 1], high=[1], interior=[0]} : f32[5]", "low must have 1 entries"),
    ("p f32[3]; p f32[]; pad(%0, %1) {low=[1], high=[1], interior=[-1]} : f32[3]", "interior must not be negative"),
    ("p f32[3]; p f32[]; pad(%0, %1) {low=[1], high=[1], interior=[1]} : f32[6]", "its type must be f32[7]"),
    ("p f32[3]; p f32[]; pad(%0, %1) {low=[-4], high=[0], interior=[0]} : f32[0]", "its type must be f32[-1]"),
    ("p f32[3]; p f64[]; pad(%0, %1) {low=[1], high=[1], interior=[0]} : f32[5]", "the padding value must be f32[]"),
    ("p f32[3]; p f32[1]; pad(%0, %1) {low=[1], high=[1], interior=[0]} : f32[5]", "the padding value must be f32[]"),
    ("concatenate {dim=0} : f32[2]", "it needs an operand"),
    ("p f32[2]; concatenate(%0) {dim=1} : f32[2]", "1 is not a dimension of rank 1"),
    ("p f32[2,3]; p f32[2]; concatenate(%0, %1) {dim=1} : f32[2,5]", "its operands must have one rank"),
    ("p f32[2,3]; p f32[4,3]; concatenate(%0, %1) {dim=1} : f32[2,6]", "may differ in dimension 1 only"),
    ("p f32[2]; p f64[2]; concatenate(%0, %1) {dim=0} : f32[4]", "may differ in dimension 0 only"),
    ("p f32[2]; p f32[2]; concatenate(%0, %1) {dim=0} : f32[5]", "its type must be f32[4]"),
    ("p f32[2,3]; reverse(%0) {dims=[2]} : f32[2,3]", "2 is not a dimension of rank 2"),
    ("p f32[2,3]; reverse(%0) {dims=[1, 1]} : f32[2,3]", "1 is named twice"),
    ("p f32[2,3]; reverse(%0) {dims=[1]} : f32[3,2]", "its type must be f32[2,3]"),
    # indirect
    ("p f32[9,5]; p f32[2]; take(%0, %1) {dim=0} : f32[2,5]", "indices of type f32[2], allowed: integers"),
    ("p f32[9,5]; p i64[2]; take(%0, %1) {dim=2} : f32[2,5]", "2 is not a dimension of rank 2"),
    ("p f32[9,5]; p i64[2]; take(%0, %1) {dim=0, wrap=2} : f32[2,5]", "wrap must be 0 or 1"),
    ("p f32[9,5]; p i64[2]; take(%0, %1) {dim=1} : f32[2,9]", "its type must be f32[9,2]"),
    ("p f32[4,9]; p b8[4,2]; take_along(%0, %1) {dim=1} : f32[4,2]", "allowed: integers"),
    ("p f32[4,9]; p i64[4,2]; take_along(%0, %1) {dim=-1} : f32[4,2]", "-1 is not a dimension of rank 2"),
    ("p f32[4,9]; p i64[4]; take_along(%0, %1) {dim=1} : f32[4]", "its indices must have rank 2"),
    ("p f32[4,9]; p i64[5,2]; take_along(%0, %1) {dim=1} : f32[5,2]", "exceeds the operand's, 4"),
    ("p f32[4,9]; p i64[4,2]; take_along(%0, %1) {dim=1} : f32[4,9]", "its type must be f32[4,2]"),
    ("p f32[4,9]; take_nd(%0) : f32[4,9]", "it needs an operand and indices"),
    ("p f32[4]; p i64[2]; take_nd(%0, %1, %1) : f32[2]", "it has 2 index operands for rank 1"),
    ("p f32[4]; p i32[2]; take_nd(%0, %1) : f32[2]", "its indices must be i64"),
    ("p f32[4,9]; p i64[2]; p i64[3]; take_nd(%0, %1, %2) : f32[2]", "its indices must have one type"),
    ("p f32[4,9]; p i64[2]; take_nd(%0, %1) : f32[2]", "its type must be f32[2,9]"),
    ('p f32[4]; p i64[2]; p f32[2]; scatter(%0, %1, %2) {dim=0, mode="sub"} : f32[4]', "mode must be one of set add"),
    ('p f32[4]; p i64[2]; p f32[3]; scatter(%0, %1, %2) {dim=0, mode="set"} : f32[4]', "its updates must be f32[2]"),
    ('p f32[4]; p i64[2]; p f64[2]; scatter(%0, %1, %2) {dim=0, mode="set"} : f32[4]', "its updates must be f32[2]"),
    ('p f32[4]; p i64[2]; p f32[2]; scatter(%0, %1, %2) {dim=0, mode="set"} : f32[2]', "its type must be f32[4]"),
    ('p f32[4]; p i64[2]; scatter_nd(%0, %1) {mode="set"} : f32[4]', "it needs an operand, indices and updates"),
    ('p f32[4]; p i64[2]; p f32[2]; scatter_nd(%0, %1, %2) {mode="maximum"} : f32[4]', "mode must be one of set add"),
    ('p f32[4,9]; p i64[2]; p f32[2]; scatter_nd(%0, %1, %2) {mode="set"} : f32[4,9]', "its updates must be f32[2,9]"),
    ('p f32[4]; p i64[2]; p f32[2]; scatter_nd(%0, %1, %2) {mode="set"} : f32[2]', "its type must be f32[4]"),
    # reductions and order
    ('p f32[2,3]; reduce(%0) {dims=[0], kind="mean"} : f32[3]', "kind must be one of add multiply"),
    ('p f32[2,3]; reduce(%0) {dims=[2], kind="add"} : f32[2]', "2 is not a dimension of rank 2"),
    ('p f32[2,3]; reduce(%0) {dims=[0, 0], kind="add"} : f32[3]', "0 is named twice"),
    ('p f32[2,3]; reduce(%0) {dims=[0], kind="add"} : f32[1,3]', "its type must be f32[3]"),
    ('p f32[2,3]; reduce(%0) {dims=[0], kind="argmax"} : f32[3]', "its type must be i64[3]"),
    ('p f32[2,3]; reduce(%0) {dims=[0], kind="or"} : f32[3]', "allowed: b8, integers"),
    ('p c64[2,3]; reduce(%0) {dims=[0], kind="maximum"} : c64[3]', "allowed: b8, integers, floats"),
    ('p f32[2]; cumulative(%0) {dim=0, kind="sum"} : f32[2]', "kind must be one of add multiply"),
    ('p i64[2]; cumulative(%0) {dim=0, kind="logaddexp"} : i64[2]', "allowed: floats"),
    ('p f32[2]; cumulative(%0) {dim=1, kind="add"} : f32[2]', "1 is not a dimension of rank 1"),
    ('p f32[2]; cumulative(%0) {dim=0, kind="add"} : f64[2]', "its type must be f32[2]"),
    ("p f32[2]; sort(%0) {dim=0, descending=2} : f32[2]", "descending must be 0 or 1"),
    ("p f32[2]; sort(%0) {dim=1, descending=0} : f32[2]", "1 is not a dimension of rank 1"),
    ("p c64[2]; sort(%0) {dim=0, descending=0} : c64[2]", "allowed: b8, integers, floats"),
    ("p f32[2]; argsort(%0) {dim=0, descending=0} : f32[2]", "its type must be i64[2]"),
    # engines
    (f"p f32[2,3]; dot_general(%0) {MATMUL} : f32[2,2]", "it takes lhs, rhs and perhaps an addend"),
    (f"p f32[2,3]; p f64[3,4]; dot_general(%0, %1) {MATMUL} : f32[2,4]", "lhs and rhs must have one dtype"),
    (f"p f32[2]; p f32[3,4]; dot_general(%0, %1) {MATMUL} : f32[2,4]", "1 is not a dimension of rank 1"),
    (f"p f32[2,3]; p f32[4,3]; dot_general(%0, %1) {MATMUL} : f32[2,3]", "sizes 3 of lhs_contract and 4"),
    (f"p f32[5,2,3]; p f32[6,3,4]; dot_general(%0, %1) {BATCHED} : f32[5,2,4]", "sizes 5 of lhs_batch and 6"),
    (
        "p f32[2,3]; p f32[3,4]; dot_general(%0, %1) "
        "{lhs_batch=[], lhs_contract=[1], rhs_batch=[0], rhs_contract=[0]} : f32[2,4]",
        "0 is named twice",
    ),
    (
        "p f32[2,3]; p f32[3,4]; dot_general(%0, %1) "
        "{lhs_batch=[], lhs_contract=[1], rhs_batch=[], rhs_contract=[]} : f32[2,3,4]",
        "lhs_contract and rhs_contract must have one length",
    ),
    (f"p f32[2,3]; p f32[3,4]; dot_general(%0, %1) {MATMUL} : f32[4,2]", "its type must be f32[2,4]"),
    (f"p f32[2,3]; p f32[3,4]; dot_general(%0, %1) {MATMUL} : bf16[2,4]", "its type must be f32[2,4]"),
    (f"p f32[2,3]; p f32[3,4]; p f32[4]; dot_general(%0, %1, %2) {MATMUL} : f32[2,4]", "its addend must have its type"),
    (
        "p f32[2,3]; p f32[3,4]; dot_general(%0, %1) "
        "{beta=1.0, lhs_batch=[], lhs_contract=[1], rhs_batch=[], rhs_contract=[0]} : f32[2,4]",
        "beta needs an addend",
    ),
    (conv("f32[1,4]", "f32[6,4]", "f32[1,6]"), "rank of at least 3"),
    (conv("b8[1,4,8,8]", "b8[6,4,3,3]", "b8[1,6,6,6]"), "allowed: integers, floats, complex numbers"),
    (conv("f32[1,4,8]", "f32[6,4,3]", "f32[1,6,6]"), "stride must have 1 entries"),
    (conv("f32[1,5,8,8]", "f32[6,4,3,3]", "f32[1,6,6,6]"), "the input has 5 channels, the weight takes 4"),
    (conv("f32[1,8,8,8]", "f32[5,4,3,3]", "f32[1,5,6,6]", groups=2), "groups must divide"),
    (conv("f32[1,4,8,8]", "f32[6,4,3,3]", "f32[1,6,6,6]", groups=0), "groups must be at least 1"),
    (conv("f32[1,4,8,8]", "f32[6,4,3,3]", "f32[1,6,6,6]", transposed=2), "transposed must be 0 or 1"),
    (conv("f32[1,4,8,8]", "f32[6,4,9,3]", "f32[1,6,0,6]"), "the kernel exceeds the padded input in spatial dimension 0"),
    (conv("f32[1,4,8,8]", "f32[6,4,3,3]", "f32[1,6,8,8]"), "its type must be f32[1,6,6,6]"),
    (conv("f32[1,4,8,8]", "f32[6,4,3,3]", "f32[1,6,6,6]", stride=[0, 1]), "stride and dilation must be at least 1"),
    (conv("f32[1,4,8,8]", "f32[6,4,3,3]", "f32[1,6,4,6]", padding=[-1, 0]), "paddings must not be negative"),
    (conv("f32[1,4,8,8]", "bf16[6,4,3,3]", "f32[1,6,6,6]"), "input and weight must have one dtype"),
    (conv("f32[1,4,8,8]", "f32[6,4,3,3]", "f32[1,6,6,6]", bias="f32[4]"), "its bias must be f32[6], is f32[4]"),
    (f"p f32[1,4,8,8]; convolution(%0) {{{CONV}, transposed=0, groups=1}} : f32[1,6,6,6]", "it takes input, weight and perhaps a bias"),
    ("p f32[2,4,9]; p f32[2,6,9]; convolution_weight_grad(%0, %1) {dilation=[1], groups=2, padding=[1], stride=[1]} : f32[6,2,4]", "the gradient exceeds what the input gives"),
    ("p f32[2,4,9]; p f32[2,6,8]; convolution_weight_grad(%0, %1) {dilation=[1], groups=4, padding=[1], stride=[1]} : f32[6,1,4]", "groups must divide"),
    ("p f32[2,4,9]; p f32[3,6,8]; convolution_weight_grad(%0, %1) {dilation=[1], groups=2, padding=[1], stride=[1]} : f32[6,2,4]", "one batch size"),
    (f"{QKV}; attention(%0, %1) {CAUSAL} : f32[2,4,5,3]", "it takes q, k, v, perhaps a bias"),
    (f"{QKV}; attention_lse(%0) {CAUSAL} : f32[2,4,5]", "it takes q, k, v, perhaps a bias"),
    (f"{QKV}; attention(%0, %1, %2) {DROPOUT} : f32[2,4,5,3]", "with dropout, seed and offset"),
    (f"{QKV}; p i64[3]; attention(%0, %1, %2, %3) {DROPOUT} : f32[2,4,5,3]", "must be i64[2]"),
    (f"{GRAD}; attention_grad(%0, %1, %2, %3, %4) {OF_Q} : f32[2,4,5,8]", "it takes q, k, v"),
    (f"{GRAD}; attention_grad(%3, %1, %2, %3, %4, %5) {OF_Q} : f32[2,4,5,8]", "must be f32[2,4,5,3]"),
    (f"{GRAD}; attention_grad(%0, %1, %0, %3, %4, %5) {OF_Q} : f32[2,4,5,8]", "the log-sum-exp must be"),
    (f"{GRAD}; attention_grad(%0, %1, %2, %3, %4, %5) {OF_Q} : f32[2,2,7,8]", "its type must be"),
    (f"{QKV}; attention(%0, %1, %2) {{is_causal=2, scale=1.0}} : f32[2,4,5,3]", "is_causal must be 0 or 1"),
    (f"{QKV}; attention(%0, %1, %2) {{is_causal=1}} : f32[2,4,5,3]", "the attribute 'scale' is missing"),
    (f"{QKV}; attention(%0, %1, %2) {CAUSAL} : f32[2,4,5,8]", "its type must be f32[2,4,5,3]"),
    (f"{QKV}; p i32[7]; attention(%0, %1, %2, %3) {CAUSAL} : f32[2,4,5,3]", "allowed: b8, floats"),
    (f"{QKV}; p f32[5]; attention(%0, %1, %2, %3) {CAUSAL} : f32[2,4,5,3]", "does not broadcast to f32[2,4,5,7]"),
    (f"{QKV}; p f32[1,1,1,1,1]; attention(%0, %1, %2, %3) {CAUSAL} : f32[2,4,5,3]", "must have rank 4 or less"),
    (f"p f32[4,5,8]; attention(%0, %0, %0) {CAUSAL} : f32[4,5,8]", "must have rank 4 and one dtype"),
    (f"p i32[2,4,5,8]; attention(%0, %0, %0) {CAUSAL} : i32[2,4,5,8]", "allowed: floats"),
    (f"p f32[2,4,5,8]; p f32[2,4,7,9]; attention(%0, %1, %1) {CAUSAL} : f32[2,4,5,9]", "must agree in B and E"),
    (f"p f32[2,4,5,8]; p f32[2,3,7,8]; attention(%0, %1, %1) {CAUSAL} : f32[2,4,5,8]", "the 3 heads of k must divide"),
    (f"{QKV}; p f32[2,2,6,3]; attention(%0, %1, %3) {CAUSAL} : f32[2,4,5,3]", "must agree in B, Hk and S"),
    (f"{QKV}; attention_lse(%0, %1, %2) {CAUSAL} : f32[2,4,7]", "its type must be f32[2,4,5]"),
    ("p f32[4,9]; nonzero(%0) : i64[3,1]", "its type must be i64[n,2]"),
    ("p f32[4,9]; nonzero(%0) : i32[3,2]", "its type must be i64[n,2]"),
    ("p f32[4,9]; nonzero(%0) : i64[37,2]", "its operand has only 36 elements"),
    ("scalar {index=0} : i64[]; rng_bits(%0, %0) {word=4} : u32[2]", "word must be 0, 1, 2 or 3"),
    ("scalar {index=0} : i64[]; rng_bits(%0, %0) {word=0} : i32[2]", "its dtype must be u32"),
    ("scalar {index=0} : f64[]; rng_bits(%0, %0) {word=0} : u32[2]", "seed and offset must be i64[]"),
]
# fmt: on


@pytest.mark.parametrize("case", GOOD)
def test_valid(case: str):
    _C.ir.verify(graph(case))


@pytest.mark.parametrize(("case", "message"), BAD)
def test_invalid(case: str, message: str):
    with pytest.raises(RuntimeError) as info:
        _C.ir.verify(graph(case))
    line = _C.ir.roundtrip(graph(case)).splitlines()[-3].strip()
    assert str(info.value).startswith(f"invalid graph: {line}: ")
    assert message in str(info.value)


def test_every_operation_has_a_valid_case():
    names = {name for name, *_ in _C.ir.opcodes()}
    used = {
        part.strip().split("(")[0].split(" ")[0] for case in GOOD for part in case.split(";")
    } - {"p"}
    assert names - used == set()


OUTPUTS = """\
graph @g {
  %0 = parameter {index=0, strides=[3, 1]} : f32[2,3]
  %1 = parameter {index=1, strides=[3, 1]} : f64[2,3]
  %2 = abs(%0) : f32[2,3]
  return OUTPUT
}
"""


@pytest.mark.parametrize(
    "output",
    [
        "%2 {strides=[3, 1]}",
        "%2 {strides=[3, 1]} aliases 0",
        "%0 {strides=[1, 0]}, %2 {strides=[1, 2]}",
    ],
)
def test_valid_outputs(output: str):
    _C.ir.verify(OUTPUTS.replace("OUTPUT", output))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("%2 {strides=[1]}", "output 0: it has 1 strides for 2 dimensions"),
        ("%2 {strides=[3, 1]}, %2 {strides=[3, -1]}", "output 1: strides must not be negative"),
        ("%2 {strides=[3, 1]} aliases 2", "output 0: it aliases parameter 2 of 2"),
        (
            "%2 {strides=[3, 1]} aliases 1",
            "output 0: it aliases parameter 1 of another type, f64[2,3]",
        ),
        ("%2 {strides=[1, 2]} aliases 0", "output 0: it aliases parameter 0 with other strides"),
    ],
)
def test_invalid_outputs(output: str, message: str):
    with pytest.raises(RuntimeError) as info:
        _C.ir.verify(OUTPUTS.replace("OUTPUT", output))
    assert f"%2 = abs(%0) : f32[2,3]: {message}" in str(info.value)
