"""Every operation of the IR as StableHLO: XLA parses it, runs it, and gives the host's numbers.

A case is written as operations separated by ";", numbered from %0; the last one is the output.
"""

# Tables read best with one case a line.
# ruff: noqa: E501

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from tests.stablehlo import xla
from torch_neuronx import _C

FLOATS = ("f32", "bf16", "f16", "f64")
INTS = ("i64", "i32", "i16", "i8", "u8", "u32")

# Values that decide: signs, zeros, halves, integers, both tails, infinities and NaN.
SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0, 2.5, 3.0, 0.1, -0.1, 0.99, -0.99]
SPECIAL += [1e-4, -1e-4, 7.25, -7.25, 12.0, 30.0, -30.0, np.inf, -np.inf, np.nan, 1e-3, 0.7, -0.7]

# Relative and absolute: an ULP of the dtype or a few, since both sides round functions their own
# way. f32: series in f32 lose up to 2^-19 where their terms cancel (lgamma) or where an exponent is
# rounded before exp (erfc). f64: as PyTorch's own default.
TOLERANCE = {"f32": (1e-5, 2e-6), "f64": (1e-7, 1e-7), "bf16": (1.6e-2, 1e-5), "f16": (2e-3, 1e-5)}
TOLERANCE |= {"c64": (1e-5, 1e-6), "c128": (1e-7, 1e-7)}

UNARY = [
    "abs",
    "negate",
    "sign",
    "floor",
    "ceil",
    "trunc",
    "round_nearest_even",
    "sqrt",
    "rsqrt",
    "exponential",
    "exp2",
    "exponential_minus_one",
    "log",
    "log2",
    "log10",
    "log_plus_one",
    "sine",
    "cosine",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "logistic",
    "erf",
    "erfc",
    "erf_inv",
    "lgamma",
    "digamma",
]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "remainder",
    "maximum",
    "minimum",
    "power",
    "atan2",
    "next_after",
]
INT_UNARY = ["abs", "negate", "sign", "floor", "ceil", "trunc", "round_nearest_even", "not"]
INT_BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "remainder",
    "maximum",
    "minimum",
    "and",
    "or",
    "xor",
]
SHIFTS = ["shift_left", "shift_right_arithmetic", "shift_right_logical"]
KINDS = ["add", "multiply", "maximum", "minimum"]
QKV = "p {t}[2,4,5,8]; p {t}[2,2,7,8]; p {t}[2,2,7,3]"
GRADS = "p {t}[2,4,5,3]; p {t}[2,4,5,3]; p f32[2,4,5]; " + QKV


def _conv(
    x,
    w,
    y,
    bias="",
    t="f32",
    transposed=0,
    groups=1,
    stride=1,
    padding=0,
    dilation=1,
    output_padding=0,
):
    n = x.count(",") - 1
    attributes = ", ".join(
        f"{name}={[value] * n}"
        for name, value in (
            ("stride", stride),
            ("padding", padding),
            ("dilation", dilation),
            ("output_padding", output_padding),
        )
    )
    parameters = f"p {t}[{x}]; p {t}[{w}]; " + (f"p {t}[{bias}]; " if bias else "")
    operands = "%0, %1, %2" if bias else "%0, %1"
    return f"{parameters}convolution({operands}) {{{attributes}, transposed={transposed}, groups={groups}}} : {t}[{y}]"


def _weight_grad(x, g, w, groups=1, stride=1, padding=0, dilation=1, t="f32"):
    n = x.count(",") - 1
    attributes = f"stride={[stride] * n}, padding={[padding] * n}, dilation={[dilation] * n}"
    return f"p {t}[{x}]; p {t}[{g}]; convolution_weight_grad(%0, %1) {{{attributes}, groups={groups}}} : {t}[{w}]"


def dtype_of(kind: str) -> str:
    return kind[: kind.index("[")]


def dims_of(kind: str) -> list[int]:
    return [int(d) for d in kind[kind.index("[") + 1 : -1].split(",") if d]


def _with_attention(lse, t):
    """The host computes the log-sum-exp with the attention of the graph."""
    head, last = lse.rsplit("; ", 1)
    attention = last.replace("attention_lse", "attention").rsplit(" : ", 1)[0]
    return f"{head}; {attention} : {t}[2,4,5,3]; {last}"


# fmt: off
def _attention(t, bias="", causal=0, dropout=None):
    extra = ([f"p {bias}"] if bias else []) + (["p i64[2]"] if dropout is not None else [])
    attributes = f"is_causal={causal}, scale=0.35" + (f", dropout={dropout}" if dropout is not None else "")
    def case(parameters, name, result, more=""):
        head = "; ".join([parameters.format(t=t), *extra])
        count = head.count("p ")
        numbers = list(range(count))
        if bias:  # broadcast to the scores, as lowerings do
            at, dims = parameters.count("p "), dims_of(bias)
            onto = list(range(4 - len(dims), 4))
            head += f"; broadcast_in_dim(%{at}) {{dims={onto}}} : {dtype_of(bias)}[2,4,5,7]"
            numbers[at] = count
        operands = ", ".join(f"%{i}" for i in numbers)
        return f"{head}; {name}({operands}) {{{attributes}{more}}} : {result}"
    return [
        case(QKV, "attention", f"{t}[2,4,5,3]"),
        _with_attention(case(QKV, "attention_lse", "f32[2,4,5]"), t),
        case(GRADS, "attention_grad", f"{t}[2,4,5,8]", ', of="q"'),
        case(GRADS, "attention_grad", f"{t}[2,2,7,8]", ', of="k"'),
        case(GRADS, "attention_grad", f"{t}[2,2,7,3]", ', of="v"'),
    ]


MATMUL = "{lhs_batch=[], lhs_contract=[1], rhs_batch=[], rhs_contract=[0]}"
CASES = [
    # sources
    "parameter {index=0, strides=[3, 1]} : f32[2,3]",
    "scalar {index=0} : f64[]", "scalar {index=0} : i64[]", "scalar {index=0} : b8[]",
    *(f"constant {{value={v}}} : {t}[3]" for t in FLOATS for v in ("0.1", "-0.0", "1e+30", "inf", "-inf", "nan", "1e-07")),
    *(f"constant {{value={v}}} : {t}[2]" for t, v in (("b8", 1), ("b8", 0), ("u8", 255), ("i8", -128), ("u64", -1), ("i64", -2**63), ("i32", 7))),
    "constant {value=0.0} : c64[2]", "constant {value=1.0} : f32[0,3]",
    "shape_constant {value=5} : i64[]",
    *(f"iota {{dim={d}}} : {t}[2,3]" for d in (0, 1) for t in ("i64", "f32", "bf16", "u8")),
    # conversions
    *(f"p {a}[29]; convert(%0) : {b}[29]" for a in ("i32", "u8", "b8") for b in (*FLOATS, "i64", "i8", "u8", "b8")),
    *(f"p {a}[29]; convert(%0) : {b}[29]" for a in FLOATS for b in (*FLOATS, "b8")),
    "p f32[29]; bitcast_convert(%0) : i32[29]", "p i16[4]; bitcast_convert(%0) : bf16[4]",
    # elementwise
    *(f"p {t}[29]; {op}(%0) : {t}[29]" for op in UNARY for t in FLOATS),
    *(f"p {t}[29]; {op}(%0) : {t}[29]" for op in INT_UNARY for t in (*INTS, "b8") if not (op == "negate" and t == "b8")),
    *(f"p {t}[29]; p {t}[29]; {op}(%0, %1) : {t}[29]" for op in BINARY for t in FLOATS if not (op == "next_after" and t.endswith("f16"))),
    *(f"p {t}[29]; {'d' if op in ('divide', 'remainder') else 'p'} {t}[29]; {op}(%0, %1) : {t}[29]" for op in INT_BINARY for t in INTS),
    *(f"p b8[29]; p b8[29]; {op}(%0, %1) : b8[29]" for op in ["add", "multiply", "maximum", "minimum", "and", "or", "xor"]),
    *(f"p {t}[29]; p u8[29]; convert(%1) : {t}[29]; power(%0, %2) : {t}[29]" for t in ("i64", "i32")),
    *(f"p {t}[29]; p u8[29]; convert(%1) : {t}[29]; {op}(%0, %2) : {t}[29]" for op in SHIFTS for t in INTS),
    *(f'p {t}[29]; p {t}[29]; compare(%0, %1) {{direction="{d}"}} : b8[29]' for d in ["EQ", "NE", "LT", "LE", "GT", "GE"] for t in ("f32", "bf16", "i64", "u8", "b8")),
    *(f"p {t}[29]; is_nan(%0) : b8[29]" for t in FLOATS),
    *(f"p b8[29]; p {t}[29]; p {t}[29]; select(%0, %1, %2) : {t}[29]" for t in ("f32", "bf16", "i64", "b8")),
    *(f"p {t}[29]; p {t}[29]; p {t}[29]; fma(%0, %1, %2) : {t}[29]" for t in ("f32", "bf16", "f16")),
    # shape
    "p f32[1,3]; broadcast_in_dim(%0) {dims=[0, 2]} : f32[4,2,3]", "p f32[]; broadcast_in_dim(%0) {dims=[]} : f32[2,2]",
    "p bf16[3,2]; broadcast_in_dim(%0) {dims=[2, 0]} : bf16[2,1,3]" ,
    "p i64[2,6]; reshape(%0) : i64[3,4]", "p f32[1]; reshape(%0) : f32[]",
    "p f32[2,3,4]; transpose(%0) {permutation=[2, 0, 1]} : f32[4,2,3]",
    "p f32[6,7]; slice(%0) {start=[1, 0], limit=[6, 7], stride=[2, 3]} : f32[3,3]",
    "p f32[2,3]; constant {value=7.0} : f32[]; pad(%0, %1) {low=[1, -1], high=[0, 2], interior=[0, 1]} : f32[3,6]",
    "p f32[2,3]; p f32[2,1]; concatenate(%0, %1) {dim=1} : f32[2,4]", "p f32[2,3]; concatenate(%0) {dim=0} : f32[2,3]",
    "p f32[2,3]; reverse(%0) {dims=[1]} : f32[2,3]", "p f32[2,3]; reverse(%0) {dims=[0, 1]} : f32[2,3]",
    # indirect
    *(f"p f32[5,4,3]; i {size} i64[2,2]; take(%0, %1) {{dim={d}}} : f32[{s}]" for d, size, s in ((0, 5, "2,2,4,3"), (1, 4, "5,2,2,3"), (2, 3, "5,4,2,2"))),
    "p bf16[5,4]; n 5 i64[3]; take(%0, %1) {dim=0, wrap=1} : bf16[3,4]", "p f32[5,4]; i 5 i32[]; take(%0, %1) {dim=0} : f32[4]",
    "p f32[5,4]; i 4 i64[5,6]; take_along(%0, %1) {dim=1} : f32[5,6]", "p i64[5,4]; i 5 i64[2,3]; take_along(%0, %1) {dim=0} : i64[2,3]",
    "p f32[5,4,3]; n 5 i64[2,2]; n 4 i64[2,2]; take_nd(%0, %1, %2) : f32[2,2,3]", "p f32[5,4]; n 5 i64[6]; take_nd(%0, %1) : f32[6,4]",
    *(f'p f32[5,4]; i 5 i64[3,4]; p f32[3,4]; scatter(%0, %1, %2) {{dim=0, mode="{m}"}} : f32[5,4]' for m in ("set", *KINDS)),
    'p i64[5,4]; i 4 i64[5,2]; p i64[5,2]; scatter(%0, %1, %2) {dim=1, mode="add"} : i64[5,4]',
    *(f'p f32[5,4,3]; n 5 i64[2]; n 4 i64[2]; p f32[2,3]; scatter_nd(%0, %1, %2, %3) {{mode="{m}"}} : f32[5,4,3]' for m in ("set", "add")),
    'p f32[5,4]; n 5 i64[7]; p f32[7,4]; scatter_nd(%0, %1, %2) {mode="add"} : f32[5,4]',
    # reductions
    *(f'p {t}[3,5,4]; reduce(%0) {{dims={d}, kind="{k}"}} : {t}[{s}]' for k in KINDS for d, s in (([1], "3,4"), ([0, 2], "5"), ([0, 1, 2], "")) for t in ("f32", "f64", "i64")),
    *(f'p {t}[3,5,4]; reduce(%0) {{dims=[1], kind="{k}"}} : {t}[3,4]' for k in (*KINDS, "and", "or") for t in ("b8", "i32", "u8")),
    *(f'p {t}[3,5,4]; reduce(%0) {{dims={d}, kind="{k}"}} : i64[{s}]' for k in ("argmax", "argmin") for d, s in (([1], "3,4"), ([0, 2], "5"), ([0, 1, 2], "")) for t in ("f32", "i32", "u8")),
    *(f'p {t}[3,37]; cumulative(%0) {{dim={d}, kind="{k}"}} : {t}[3,37]' for k in KINDS for d in (0, 1) for t in ("f32", "i64")),
    *(f'p {t}[3,9]; cumulative(%0) {{dim=1, kind="logaddexp"}} : {t}[3,9]' for t in ("f32", "f64")),
    *(f"p {t}[3,29]; {op}(%0) {{dim={d}, descending={k}}} : {r}[3,29]" for t in ("f32", "bf16", "i64", "u8", "b8") for d in (0, 1) for k in (0, 1) for op, r in (("sort", t), ("argsort", "i64"))),
    # engines
    *(f"p {t}[3,4]; p {t}[4,5]; dot_general(%0, %1) {MATMUL} : {t}[3,5]" for t in (*FLOATS, "i64", "i32")),
    "p bf16[3,4]; p bf16[4,5]; dot_general(%0, %1) {lhs_batch=[], lhs_contract=[1], rhs_batch=[], rhs_contract=[0]} : f32[3,5]",
    *(f"p {t}[3,4]; p {t}[4,5]; p {t}[3,5]; dot_general(%0, %1, %2) {MATMUL[:-1]}, alpha=2.0, beta=-3.0}} : {t}[3,5]" for t in ("f32", "bf16", "i64")),
    "p f32[3,2,6]; p f32[6,5,2]; dot_general(%0, %1) {lhs_batch=[1], lhs_contract=[2], rhs_batch=[2], rhs_contract=[0]} : f32[2,3,5]",
    *(_conv("2,4,7,8", "6,4,3,2", "2,6,5,7", t=t) for t in ("f32", "bf16", "f64")),
    _conv("2,4,7,8", "6,2,3,2", "2,6,3,4", bias="6", groups=2, stride=2, padding=1, dilation=2),
    _conv("2,4,9", "6,4,3", "2,6,5", bias="6", stride=2, padding=1, t="bf16"), _conv("1,2,4,5,6", "3,2,2,2,2", "1,3,3,4,5"),
    _conv("2,4,5,6", "4,3,3,2", "2,3,7,7", bias="3", transposed=1),
    _conv("2,4,5,6", "4,3,3,3", "2,6,10,12", transposed=1, groups=2, stride=2, padding=1, output_padding=1),
    _conv("2,4,5", "4,3,3", "2,3,13", transposed=1, stride=2, dilation=2),
    _weight_grad("2,4,7,8", "2,6,5,7", "6,4,3,2"), _weight_grad("2,4,9,9", "2,6,5,5", "6,2,3,3", groups=2, stride=2, padding=1),
    _weight_grad("2,4,8,8", "2,6,3,3", "6,4,3,3", stride=2, dilation=1), _weight_grad("2,4,9", "2,6,5", "6,4,3", dilation=2, t="bf16"),
    *(case for t in ("f32", "bf16", "f64") for case in _attention(t)),
    *_attention("f32", causal=1), *_attention("f32", bias="b8[2,1,5,7]"), *_attention("f32", bias="f32[7]"),
    *_attention("bf16", bias="bf16[1,4,1,7]", causal=1), *_attention("f32", dropout=0.3),
    "z f32[3,4,5]; nonzero(%0) : i64[20,3]", "z b8[40]; nonzero(%0) : i64[13,1]",
    *(f"scalar {{index=0}} : i64[]; scalar {{index=1}} : i64[]; rng_bits(%0, %1) {{word={w}}} : u32[3,50]" for w in range(4)),
]
# fmt: on
def contiguous(dims: list[int]) -> list[int]:
    strides = [1] * len(dims)
    for d in range(len(dims) - 2, -1, -1):
        strides[d] = strides[d + 1] * max(1, dims[d + 1])
    return strides


def values(code: str, kind: str, rng: np.random.Generator) -> np.ndarray:
    """``code``: p any, d not 0, "i n" indices below n, "n n" such that may be negative, z with 20 or 13
    nonzero elements."""
    dtype, dims = xla.NUMPY[dtype_of(kind)], dims_of(kind)
    head, *rest = code.split()
    if head in "in":
        size = int(rest[0])
        return np.asarray(rng.integers(-size if head == "n" else 0, size, dims), dtype)
    if head == "z":
        flat = np.zeros(int(np.prod(dims)))
        flat[rng.permutation(flat.size)[: 20 if len(dims) > 1 else 13]] = 1.5
        return flat.reshape(dims).astype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, dims).astype(dtype)
    if head == "d":
        signs = 1 if dtype.kind == "u" else rng.choice([-1, 1], dims)
        return np.asarray(rng.integers(1, 10, dims) * signs, dtype)
    if np.issubdtype(dtype, np.integer):
        return np.asarray(rng.integers(0 if dtype.kind == "u" else -9, 10, dims), dtype)
    count = int(np.prod(dims))
    if dims[-1:] == [len(SPECIAL)]:
        rows = [rng.permutation(SPECIAL) for _ in range(count // len(SPECIAL))]
        return np.concatenate(rows).reshape(dims).astype(dtype)
    return np.asarray(rng.standard_normal(dims)).astype(dtype)


def build(case: str) -> tuple[str, list[np.ndarray], list[float | int], list[np.ndarray]]:
    """The graph, its inputs, its scalars and memory for its outputs."""
    rng = np.random.default_rng(len(case))
    lines, inputs, scalars = [], [], []
    for i, line in enumerate(part.strip() for part in case.split(";")):
        if re.match(r"(p|z|d|[in] \d+) ", line):
            code, kind = line.rsplit(" ", 1)
            line = (
                f"parameter {{index={len(inputs)}, strides={contiguous(dims_of(kind))}}} : {kind}"
            )
            inputs.append(values(code, kind, rng))
        elif line.startswith("parameter"):
            inputs.append(values("p", line.split(" : ")[1], rng))
        elif line.startswith("scalar"):
            kind = dtype_of(line.split(" : ")[1])
            scalars.append({"f64": 0.1, "b8": 1}.get(kind, 2**32 - 70 + 2**35 * len(scalars)))
        lines.append(f"  %{i} = {line}")
    outputs, returned = [], []
    # The host computes a log-sum-exp with its attention only: both are outputs.
    for line in lines[-2:] if "attention_lse" in case else lines[-1:]:
        kind = line.rsplit(" : ", 1)[1]
        returned.append(f"{line.split()[0]} {{strides={contiguous(dims_of(kind))}}}")
        outputs.append(np.zeros(dims_of(kind), xla.NUMPY[dtype_of(kind)]))
    lines.append(f"  return {', '.join(returned)}")
    return "graph @case {\n" + "\n".join(lines) + "\n}\n", inputs, scalars, outputs


def make_consistent(case: str, inputs: list[np.ndarray]) -> None:
    """The gradient of attention takes the attention's own result and log-sum-exp."""
    if "attention_grad" not in case:
        return
    last = case.split("; ")[-1]
    attributes = re.sub(r', of="."', "", last[last.index("{") :].split(" : ")[0])
    parameters = case.split("; attention_grad")[0].split("; ")[3:]
    numbers = re.findall(r"%(\d+)", case[case.index("attention_grad(") :])[3:]
    operands = ", ".join(f"%{int(i) - 3}" for i in numbers)
    parameters = [re.sub(r"%(\d+)", lambda m: f"%{int(m[1]) - 3}", p) for p in parameters]
    t = dtype_of(parameters[0][2:])
    lse = f"attention_lse({operands}) {attributes} : f32[2,4,5]"
    text, *_ = build("; ".join([*parameters, *_with_attention(f"; {lse}", t).split("; ")[1:]]))
    xla.run_on_host(text, inputs[3:], [], inputs[1:3])


def by_numpy(case: str, inputs: list[np.ndarray]) -> np.ndarray | None:
    """Of operations that the host leaves to PyTorch's kernels, so that its compiler has no code."""
    *_, last = case.split("; ")
    if last.startswith("sort"):
        x, dim = inputs[0].astype(np.float64), int(last[last.index("dim=") + 4])
        ordered = np.sort(x, axis=dim)  # NaN last
        ordered = np.flip(ordered, dim) if "descending=1" in last else ordered
        return ordered.astype(inputs[0].dtype)
    if last.startswith("cumulative") and ("maximum" in last or "minimum" in last):
        scan = np.maximum if "maximum" in last else np.minimum
        return scan.accumulate(inputs[0], axis=int(last[last.index("dim=") + 4]))
    if last.startswith("dot_general") and inputs[0].dtype.itemsize == 2 and "f32[" in last:
        return inputs[0].astype(np.float32) @ inputs[1].astype(np.float32)
    return None


@pytest.fixture(scope="module", autouse=True)
def device():
    """Some of the host's library functions come with the device."""
    torch.zeros(1, device="neuron")


@pytest.mark.parametrize("case", CASES)
def test_xla_gives_the_hosts_numbers(case: str):
    text, inputs, scalars, outputs = build(case)
    make_consistent(case, inputs)
    computed = by_numpy(case, inputs)
    if computed is None:
        xla.run_on_host(text, inputs, scalars, outputs)
    else:
        outputs = [computed]
    kinds = [dtype_of(m) for m in re.findall(r"scalar {[^}]*} : (\S+\])", case)]
    given = [np.array(s, xla.NUMPY[k]) for s, k in zip(scalars, kinds, strict=True)]
    results = xla.run(_C.ir.stablehlo(text), [*inputs, *given])
    for actual, expected in zip(results, outputs, strict=True):
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        name = next((n for n, t in xla.NUMPY.items() if t == expected.dtype), "")
        rtol, atol = TOLERANCE.get(name, (0, 0))
        if "attention_grad" in case and name == "bf16":
            atol = 2e-2  # both sides round what they multiply, of size 1, and sum up to 20 of them
        wide = np.float64 if name in FLOATS else expected.dtype
        np.testing.assert_allclose(actual.astype(wide), expected.astype(wide), rtol=rtol, atol=atol)


def test_every_operation_has_a_case():
    used = {part.strip().split("(")[0].split(" ")[0] for case in CASES for part in case.split(";")}
    assert {name for name, *_ in _C.ir.opcodes()} - used == set()


def test_complex_numbers():
    """The host moves them only; XLA against NumPy shows that their types and numbers are right."""
    text = (
        "graph @c {\n  %0 = parameter {index=0, strides=[1]} : c64[3]\n"
        "  %1 = constant {value=2.5} : c64[3]\n  %2 = multiply(%0, %1) : c64[3]\n"
        "  %3 = parameter {index=1, strides=[1]} : f32[3]\n  %4 = convert(%3) : c64[3]\n"
        "  %5 = add(%2, %4) : c64[3]\n  return %5 {strides=[1]}\n}\n"
    )
    x, y = np.array([1 + 2j, -1j, 0.5], np.complex64), np.array([1, 2, 3], np.float32)
    (actual,) = xla.run(_C.ir.stablehlo(text), [x, y])
    np.testing.assert_allclose(actual, x * 2.5 + y, rtol=1e-6)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("p c64[4]; asin(%0) : c64[4]", "StableHLO has no form of asin of c64"),
        ("p f64[4]; fma(%0, %0, %0) : f64[4]", "StableHLO has no form of fma of f64"),
    ],
)
def test_what_has_no_form_is_named(case: str, message: str):
    with pytest.raises(NotImplementedError, match=re.escape(message)):
        _C.ir.stablehlo(build(case)[0])


REGION = """\
graph @region {
  %0 = parameter {index=0, strides=[1]} : f32[4]
  %1 = constant {value=2.0} : f32[]
  %2 = broadcast_in_dim(%1) {dims=[]} : f32[4] in aten.example#0
  %3 = multiply(%0, %2) : f32[4] in aten.example#0
  %4 = exponential(%3) : f32[4] in aten.example#0
  %5 = add(%4, %3) : f32[4]
  return %5 {strides=[1]} aliases 0
}
"""


def test_a_region_is_one_composite():
    text = _C.ir.stablehlo(REGION, ["weight"])
    assert (
        'stablehlo.composite "aten.example" %arg0 '
        "{composite_attributes = {}, decomposition = @aten.example.0} : "
        "(tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)"
    ) in text
    assert '{tf.aliasing_output = 0 : i32} loc("weight")' in text
    x = np.arange(4, dtype=np.float32)
    (actual,) = xla.run(text, [x.copy()])
    np.testing.assert_allclose(actual, np.exp(2 * x) + 2 * x, rtol=1e-6)
    # Equal definitions are one function.
    twice = _C.ir.stablehlo(build("p f32[4]; erf(%0) : f32[4]; erf(%1) : f32[4]")[0])
    assert twice.count("stablehlo.composite") == 2
    assert twice.count("func.func private") == 1


def test_regions_in_the_text_of_graphs():
    assert _C.ir.roundtrip(REGION) == REGION
    with pytest.raises(ValueError, match="region 0 is aten.example, not other"):
        _C.ir.roundtrip(REGION.replace("%3) : f32[4] in aten.example", "%3) : f32[4] in other"))
    with pytest.raises(ValueError, match="there is no region -1"):
        _C.ir.roundtrip(REGION.replace("#0", "#-1"))
