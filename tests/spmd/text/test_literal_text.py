"""Literals: every bit pattern of every type comes back, and what does not fit is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spmd.errors import HloParseError
from spmd.literal import Literal
from spmd.shape import ArrayShape, PrimitiveType, Shape, TupleShape, array
from spmd.text.lexer import Scanner
from spmd.text.literal_text import format_literal, integer_range, read_literal
from spmd.text.shape_text import parse_shape

FLOATS = [t for t in PrimitiveType if t.is_floating]
INTEGERS = [t for t in PrimitiveType if t.is_integer]
#: Types whose nans carry payloads; of the others all nans are one.
IEEE = {"f16", "bf16", "f32", "f64", "f8e5m2", "f8e4m3", "f8e3m4"}


def read(shape: Shape | str, text: str) -> Literal | None:
    scanner = Scanner.of(text)
    literal = read_literal(scanner, parse_shape(shape) if isinstance(shape, str) else shape)
    scanner.finish()
    return literal


def value(shape: str, text: str) -> np.ndarray:
    literal = read(shape, text)
    assert literal is not None
    return literal.value()


def bits_of(array_: np.ndarray) -> list[int]:
    return np.ascontiguousarray(array_).view(f"u{array_.dtype.itemsize}").reshape(-1).tolist()


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@settings(max_examples=60)
@given(data=st.data())
def test_float_bits_come_back(kind: PrimitiveType, data: st.DataObject) -> None:
    limit = (1 << kind.bits) - 1
    patterns = data.draw(st.lists(st.integers(0, limit), min_size=1, max_size=20))
    unsigned = np.array(patterns, dtype=f"u{kind.byte_size}")
    floats = unsigned.view(kind.numpy)
    literal = Literal.of(array(kind, len(patterns)), floats)
    again = read(literal.shape, format_literal(literal))
    assert again is not None
    found = bits_of(again.value())
    for before, after in zip(patterns, found, strict=True):
        with np.errstate(invalid="ignore"):  # a signaling nan
            is_nan = bool(np.isnan(np.array([before], unsigned.dtype).view(kind.numpy))[0])
        if is_nan and kind.value not in IEEE:
            assert np.isnan(np.array([after], unsigned.dtype).view(kind.numpy))[0]
        else:
            assert before == after


@pytest.mark.parametrize("kind", [k for k in FLOATS if k.byte_size == 1], ids=str)
def test_all_values_of_one_byte_types(kind: PrimitiveType) -> None:
    patterns = np.arange(1 << kind.bits, dtype=np.uint8)
    floats = patterns.view(kind.numpy)
    literal = Literal.of(array(kind, patterns.size), floats)
    again = read(literal.shape, format_literal(literal))
    assert again is not None
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(again.value().astype(np.float64), floats.astype(np.float64))


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_integer_limits(kind: PrimitiveType) -> None:
    low, high = integer_range(kind)
    literal = read(array(kind, 2), f"{{{low}, {high}}}")
    if kind not in (PrimitiveType.S1, PrimitiveType.U1):
        assert literal is not None
        assert [int(v) for v in literal.value()] == [low, high]
        assert format_literal(literal) == f"{{{low}, {high}}}"
    # XLA's lexer wraps 64-bit numbers: see test_forms.
    for outside in (-(2**63) - 1, 2**64) if kind.bits == 64 else (low - 1, high + 1):
        with pytest.raises(HloParseError, match=f"{outside} does not fit in {kind}"):
            read(array(kind), str(outside))


@settings(max_examples=60)
@given(dims=st.lists(st.integers(0, 3), max_size=5))
def test_every_rank_comes_back(dims: list[int]) -> None:
    shape = ArrayShape(PrimitiveType.S32, tuple(dims))
    literal = Literal.of(shape, np.arange(shape.num_elements).reshape(dims))
    assert read(shape, format_literal(literal)) == literal


@pytest.mark.parametrize(
    ("shape", "text", "wanted"),
    [
        ("s32[]", "42", 42),
        ("s32[2,2]", "{ {1, 2}, {3, 4} }", [[1, 2], [3, 4]]),
        ("s32[2,2]", "{{1 2} {3 4}}", [[1, 2], [3, 4]]),
        ("s32[1,1,2]", "{ { { 7, 5 } } }", [[[7, 5]]]),
        ("s32[2,1]", "{ /*i0=0*/ {1}, /*i0=1*/ {2} }", [[1], [2]]),
        ("s32[3]", "{1, /* two */ 2, 3}", [1, 2, 3]),
        ("f32[0]", "{}", []),
        ("f32[2,0]", "{ { /*i0=0*/ }, { /*i0=1*/ } }", [[], []]),
        ("f32[0,2]", "{}", np.zeros((0, 2))),
        ("pred[2]", "{true, false}", [True, False]),
        ("pred[2]", "{1, 0}", [True, False]),
        ("f32[3]", "{1e-5, -.5, 1.}", [1e-5, -0.5, 1.0]),
        ("f32[2]", "{inf, -inf}", [np.inf, -np.inf]),
        ("f32[]", "-3", -3.0),
        ("u64[]", "18446744073709551615", 2**64 - 1),
        ("u64[]", "-1", 2**64 - 1),
        ("s64[2]", "{9223372036854775808, 18446744073709551615}", [-(2**63), -1]),
        ("s8[]", "18446744073709551615", -1),
        ("s64[]", "000000000000000000000000000000000000000000000000007", 7),
        ("f32[2]", "{9223372036854775808, 9223372036854775808.0}", [-(2.0**63), 2.0**63]),
        ("c64[]", "(18446744073709551615, 1)", -1 + 1j),
        ("pred[2]", "{18446744073709551615, 0}", [True, False]),
        ("f8e4m3fn[]", "464", 448),
        ("f4e2m1fn[2]", "{-inf, 7}", [-6, 6]),
        ("f32[2,2]", "3.5", [[3.5, 0], [0, 0]]),
        ("c64[]", "(1, -2.5)", 1 - 2.5j),
        ("c64[2]", "{(1, -2.5), (-inf, 0)}", [1 - 2.5j, complex(-np.inf, 0)]),
        (
            "c64[2,2]",
            "{ {( 1,2 ) (3 ,4)}, {(5, 6), (7, 8) } }",
            [[1 + 2j, 3 + 4j], [5 + 6j, 7 + 8j]],
        ),
        ("c64[3]", "{(1, 2), /* two */ (3, /*i*/ 4), (5, 6)}", [1 + 2j, 3 + 4j, 5 + 6j]),
        ("c64[3]", "{(1, 2), (nan(0x400000), 4), (5, 6)}", [1 + 2j, complex(np.nan, 4), 5 + 6j]),
    ],
)
def test_forms(shape: str, text: str, wanted: object) -> None:
    found = value(shape, text)
    np.testing.assert_array_equal(found, np.asarray(wanted, found.dtype))


def test_a_number_without_braces_in_a_tuple() -> None:
    literal = read("(s32[2], pred[2])", "(7, true)")
    assert literal is not None
    assert format_literal(literal) == "({7, 0}, {true, false})"


@pytest.mark.parametrize("text", ["{1, ...}", "{..., }", "{... ...}", "{1 2 3 ...}"])
def test_dots_elide_all_of_it(text: str) -> None:
    assert read("f32[3]", text) is None


def test_nan_keeps_the_one_sign_it_has() -> None:
    assert bits_of(value("f8e4m3fn[2]", "{nan, -nan}")) == [0x7F, 0xFF]
    assert bits_of(value("f8e4m3fn[2]", "{inf, -inf}")) == [0x7F, 0xFF]
    assert (
        format_literal(
            Literal.of(
                array(PrimitiveType.F8E4M3FN, 1),
                np.array([0xFF], np.uint8).view(PrimitiveType.F8E4M3FN.numpy),
            )
        )
        == "{-nan}"
    )


def test_nan_payloads() -> None:
    assert bits_of(value("f32[4]", "{nan, -nan, nan(0x1), -nan(0x400001)}")) == [
        0x7FC00000,
        0xFFC00000,
        0x7F800001,
        0xFFC00001,
    ]
    with pytest.raises(HloParseError, match="payload"):
        read("bf16[]", "nan(0x80)")


def test_negative_zero_keeps_its_sign() -> None:
    zero = read("f32[]", "-0")
    assert zero is not None
    assert np.signbit(zero.value())
    assert format_literal(zero) == "-0.0"


def test_tuple_literal() -> None:
    literal = read("(s32[2], (f32[]))", "({1,2}, (3))")
    assert literal is not None
    assert isinstance(literal.shape, TupleShape)
    assert format_literal(literal) == "({1, 2}, (3))"


def test_elided_literal_has_no_value() -> None:
    assert read("f32[1000000]", "{...}") is None
    assert read("(f32[2], f32[9])", "({1,2}, {...})") is None


@pytest.mark.parametrize(
    ("shape", "text", "message"),
    [
        ("s32[3]", "{1,2}", "expected 3 elements in dimension 0 of s32[3], found 2"),
        ("s32[2]", "{1,2,3}", "expected 2 elements in the last dimension of s32[2], found more"),
        ("s32[2]", "{{1,2}}", "expected a number, found '{'"),
        ("s32[2,1]", "{1,2}", "expected '{' for dimension 1"),
        ("s32[]", "{1}", "expected a number, found '{'"),
        ("s32[]", "1.5", "expected an integer for s32, found '1.5'"),
        ("f32[]", "1e39", "1e39 does not fit in f32"),
        ("f16[]", "70000", "70000 does not fit in f16"),
        ("f8e4m3fn[]", "500", "500 does not fit in f8e4m3fn"),
        ("f32[]", "abc", "expected a number, found 'abc'"),
        ("f32[]", "1_0", "expected a number, found '1_0'"),
        ("pred[]", "maybe", "expected true or false"),
        ("c64[]", "1", "expected '('"),
        ("token[]", "1", "a literal cannot have the shape token[]"),
        ("f32[1152921504606846976]", "{1, 2}", "found 2"),
        ("s32[2]", "{1, 2", "found the end"),
    ],
)
def test_refused(shape: str, text: str, message: str) -> None:
    with pytest.raises(HloParseError) as caught:
        read(shape, text)
    assert message in str(caught.value)
