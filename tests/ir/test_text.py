"""The text form of graphs: Parse(Print(g)) is the identity, and errors say where they are."""

# Tables read best with one case a line.
# ruff: noqa: E501

from __future__ import annotations

import math

import pytest
import torch  # noqa: F401 (it loads the extension)
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_neuronx import _C

ADD = """\
graph @add {
  %0 = parameter {index=0, strides=[8, 1]} : f32[4,8]
  %1 = scalar {index=0} : f64[]
  %2 = convert(%1) : f32[]
  %3 = broadcast_in_dim(%2) {dims=[]} : f32[4,8]
  %4 = add(%0, %3) : f32[4,8]
  return %4 {strides=[8, 1]} aliases 0, %2 {strides=[]}
}
"""


def test_canonical_text_stays():
    assert _C.ir.roundtrip(ADD) == ADD


def test_white_space_means_nothing():
    assert _C.ir.roundtrip(" ".join(ADD.split())) == ADD
    tight = ADD.replace(", ", ",").replace(" = ", "=").replace(" : ", ":").replace("\n", "\r\n\t")
    assert _C.ir.roundtrip(tight) == ADD


def test_attributes_are_sorted():
    text = ADD.replace("{index=0, strides=[8, 1]}", "{strides=[8, 1], index=0}")
    assert _C.ir.roundtrip(text) == ADD


def test_no_outputs():
    text = "graph @nothing {\n  return\n}\n"
    assert _C.ir.roundtrip(text) == text


def constant(value: str, dtype: str = "f64") -> str:
    return f"graph @c {{\n  %0 = constant {{value={value}}} : {dtype}[]\n  return %0 {{strides=[]}}\n}}\n"


@pytest.mark.parametrize(
    "value",
    [
        "0.0",
        "-0.0",
        "1.0",
        "0.1",
        "1e+100",
        "5e-324",
        "1.7976931348623157e+308",
        "inf",
        "-inf",
        "nan",
        "7",
        "-9223372036854775808",
        "9223372036854775807",
        '"x"',
        r'"a \"quoted\" \\ path\x0a\xff"',
        '""',
        "[]",
        "[1, -2, 3]",
    ],
)
def test_attribute_values_keep_their_kind(value: str):
    assert _C.ir.roundtrip(constant(value)) == constant(value)


@given(st.floats(allow_nan=False))
def test_doubles_are_exact(value: float):
    printed = _C.ir.roundtrip(constant(repr(value)))
    text = printed.split("value=")[1].split("}")[0]
    assert float(text) == value and math.copysign(1, float(text)) == math.copysign(1, value)
    assert not text.lstrip("-").isdigit()  # an integer it would be read as


@pytest.mark.parametrize("name", ["aten::add.Tensor", "a-b_c", '"two words"', '""', r'"\"{"'])
def test_graph_names(name: str):
    text = f"graph @{name} {{\n  return\n}}\n"
    assert _C.ir.roundtrip(text) == text


# fmt: off
ERRORS = [
    ("", 1, 1, "expected 'graph', found the end of the text"),
    ("grape @g {", 1, 1, "expected 'graph', found 'grape @g {'"),
    ("graph g {", 1, 7, "expected '@', found 'g {'"),
    ("graph @ {", 1, 9, "expected the name of the graph"),
    ("graph @g\n  return", 2, 3, "expected '{'"),
    ("graph @g {\n  %1 = iota {dim=0} : i64[2]", 2, 3, "expected %0, the next value"),
    ("graph @g {\n  %0 = jota {dim=0} : i64[2]", 2, 8, "no operation is called 'jota'"),
    ("graph @g {\n  %0 = abs(%0) : f32[]", 2, 12, "%0 is used before its definition"),
    ("graph @g {\n  %0 = abs(0) : f32[]", 2, 12, "expected a value (%number), found '0) : f32[]'"),
    ("graph @g {\n  %0 = abs(%x) : f32[]", 2, 13, "expected the number of a value"),
    ("graph @g {\n  %0 = iota {dim} : i64[2]", 2, 17, "expected '='"),
    ("graph @g {\n  %0 = iota {dim=} : i64[2]", 2, 18, "expected a number, a quoted string or a list"),
    ("graph @g {\n  %0 = iota {dim=1x} : i64[2]", 2, 18, "expected a number"),
    ("graph @g {\n  %0 = iota {dim=infinity} : i64[2]", 2, 18, "expected a number"),
    ("graph @g {\n  %0 = iota {dim=1.5.2} : i64[2]", 2, 18, "expected a number"),
    ("graph @g {\n  %0 = iota {dim=99999999999999999999} : i64[2]", 2, 18, "is out of range"),
    ("graph @g {\n  %0 = iota {dim=1e999} : i64[2]", 2, 18, "is out of range"),
    ("graph @g {\n  %0 = iota {dim=[1, 2} : i64[2]", 2, 23, "expected ',' or ']'"),
    ("graph @g {\n  %0 = iota {dim=[1.5]} : i64[2]", 2, 19, "expected an integer"),
    ('graph @g {\n  %0 = iota {dim="ab} : i64[2]', 2, 18, "does not end"),
    (r'graph @g {%0 = iota {dim="\n"}', 1, 27, r"expected one of \" \\ \xNN"),
    (r'graph @g {%0 = iota {dim="\xg0"}', 1, 27, r"expected one of \" \\ \xNN"),
    ("graph @g {\n  %0 = iota {dim=0, dim=1} : i64[2]", 2, 21, "'dim' is given twice"),
    ("graph @g {\n  %0 = iota {dim=0 : i64[2]", 2, 20, "expected ',' or '}'"),
    ("graph @g {\n  %0 = iota {dim=0} i64[2]", 2, 21, "expected ':'"),
    ("graph @g {\n  %0 = iota {dim=0} : i65[2]", 2, 23, "unknown dtype 'i65'"),
    ("graph @g {\n  %0 = iota {dim=0} : i64", 2, 26, "expected '['"),
    ("graph @g {\n  %0 = scalar {index=1} : f64[]", 2, 8, "expected index=0, the next scalar"),
    ("graph @g {\n  %0 = parameter {strides=[]} : f64[]", 2, 8, "expected index=0, the next parameter"),
    ("graph @g {\n  return %0 {strides=[]}\n}", 2, 10, "%0 is used before its definition"),
    ("graph @g {\n  return\n", 3, 1, "expected '}', found the end of the text"),
    ("graph @g {\n  return\n}\nx", 4, 1, "expected the end of the text, found 'x'"),
    (ADD.replace("%2 {strides=[]}", "%2"), 8, 1, "expected {strides=[...]}"),
    (ADD.replace("%2 {strides=[]}", "%2 {strides=1}"), 7, 44, "expected {strides=[...]}"),
    (ADD.replace("aliases 0", "aliases x"), 7, 38, "expected the index of a parameter"),
    (ADD.replace("aliases 0", "aliases -1"), 7, 38, "expected the index of a parameter"),
]
# fmt: on


@pytest.mark.parametrize(("text", "line", "column", "message"), ERRORS)
def test_error_positions(text: str, line: int, column: int, message: str):
    with pytest.raises(ValueError) as info:
        _C.ir.roundtrip(text)
    assert f"line {line} column {column}: " in str(info.value)
    assert message in str(info.value)


names = st.text(st.characters(codec="latin-1"), max_size=6)
integers = st.integers(-(2**63), 2**63 - 1)
quoted = names.map(
    lambda s: (
        '"'
        + "".join(f"\\x{ord(c):02x}" if not " " <= c <= "~" or c in '"\\' else c for c in s)
        + '"'
    )
)
attribute_values = st.one_of(
    integers.map(str),
    st.floats().map(repr),
    quoted,
    st.lists(integers, max_size=4).map(lambda values: "[" + ", ".join(map(str, values)) + "]"),
)
dtypes = st.sampled_from(
    [
        "b8",
        "u8",
        "i8",
        "u16",
        "i16",
        "u32",
        "i32",
        "u64",
        "i64",
        "f16",
        "bf16",
        "f32",
        "f64",
        "c64",
        "c128",
    ]
)
types = st.builds(
    lambda dtype, dims: f"{dtype}[{','.join(map(str, dims))}]",
    dtypes,
    st.lists(st.integers(0, 2**40), max_size=5),
)


@st.composite
def graphs(draw) -> str:
    """Any graph that can be said, most of them invalid."""
    codes = [c for c, *_ in _C.ir.opcodes() if c not in ("parameter", "scalar")]
    lines = []
    count = draw(st.integers(1, 8))
    for i in range(count):
        operands = draw(st.lists(st.integers(0, i - 1), max_size=4)) if i else []
        attributes = draw(
            st.dictionaries(
                st.from_regex("[a-z_]{1,8}", fullmatch=True), attribute_values, max_size=3
            )
        )
        line = f"%{i} = {draw(st.sampled_from(codes))}"
        line += "(" + ", ".join(f"%{o}" for o in operands) + ")" if operands else ""
        line += (
            " {" + ", ".join(f"{k}={v}" for k, v in attributes.items()) + "}" if attributes else ""
        )
        lines.append(f"{line} : {draw(types)}")
    outputs = draw(
        st.lists(st.tuples(st.integers(0, count - 1), st.lists(integers, max_size=3)), max_size=3)
    )
    returned = ", ".join(f"%{i} {{strides=[{', '.join(map(str, s))}]}}" for i, s in outputs)
    return f"graph @{draw(quoted)} {{\n" + "\n".join(lines) + f"\nreturn {returned}\n}}"


@settings(deadline=None)
@given(graphs())
def test_any_graph_round_trips(text: str):
    printed = _C.ir.roundtrip(text)
    assert _C.ir.roundtrip(printed) == printed
    assert "".join(printed.split()).count("%") == "".join(text.split()).count("%")


@settings(deadline=None)
@given(st.text('graph @{}%0123=:(),[]"\\xnf.-+e \nreturnabs{strides', max_size=80))
def test_any_text_is_read_or_refused(text: str):
    try:
        _C.ir.roundtrip(text)
    except ValueError as error:
        assert "line " in str(error)


@settings(deadline=None)
@given(st.integers(0, len(ADD) - 1), st.characters(codec="ascii"))
def test_one_character_changed(position: int, character: str):
    try:
        printed = _C.ir.roundtrip(ADD[:position] + character + ADD[position + 1 :])
    except ValueError as error:
        assert "line " in str(error)
    else:
        assert _C.ir.roundtrip(printed) == printed
