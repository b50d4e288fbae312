"""Shapes and layouts."""

from __future__ import annotations

import pytest

from spmd.errors import HloParseError
from spmd.shape import ArrayShape, Layout, PrimitiveType, TupleShape
from spmd.text.shape_text import parse_shape


@pytest.mark.parametrize("kind", PrimitiveType, ids=str)
def test_every_element_type(kind: PrimitiveType) -> None:
    assert parse_shape(f"{kind.value}[2,3]{{0,1}}") == ArrayShape(kind, (2, 3), Layout((0, 1)))


@pytest.mark.parametrize(
    "text",
    [
        "f32[]",
        "f32[0,4]{1,0}",
        "s32[<=8,4]{1,0}",
        "(f32[2]{0}, (s32[], ()), token[])",
        "token[]",
        "opaque[]",
        "f32[?,784]{1,0}",
        "(b(f32[4]{0}), f32[?])",
        "()",
        "f32[16,256]{1,0:T(8,128)(2,1)}",
        "f32[16,256]{1,0:T(*,128)}",
        "s4[16]{0:E(4)}",
        "f32[16,256]{1,0:T(8,128)S(1)}",
        "u32[]{:S(2)}",
        "f32[]{:T(128)}",
        "f32[16,256]{1,0:SC(1:64)}",
        "f32[16]{0:T(8)L(1024)}",
        "f32[16]{0:T(8)M(1024)}",
        "f32[16,2]{1,0:T(8,128)#(u32)*(u32)}",
        "f32[16]{0:#(s32)*(s64)}",
        "(f32[1], f32[1], f32[1], f32[1], f32[1], /*index=5*/f32[1])",
    ],
)
def test_written_back(text: str) -> None:
    assert str(parse_shape(text)) == text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("f32[ 2 , 3 ]", "f32[2,3]"),
        ("f32[2] {0}", "f32[2]{0}"),
        ("f32[2]{ /* minor */ 0 }", "f32[2]{0}"),
        ("f32[2]{0:}", "f32[2]{0}"),
        ("f32[]{:}", "f32[]"),
        ("f32[2]{0:T}", "f32[2]{0:T()}"),
        ("f32[2]{0:TS(1)}", "f32[2]{0:T()S(1)}"),
        ("f32[2]{0:D(D)T(8)}", "f32[2]{0:T(8)}"),
        ("f32[16,2]{1,0:D(D,C)}", "f32[16,2]{1,0}"),
        ("b ( f32[2]{0} )", "b(f32[2]{0})"),
        ("f32[16,256]{1,0 : T( 8, 128 ) S(1)}", "f32[16,256]{1,0:T(8,128)S(1)}"),
        ("( f32[2] ,\n s32[] )", "(f32[2], s32[])"),
    ],
)
def test_blanks(text: str, plain: str) -> None:
    assert str(parse_shape(text)) == plain


def test_dynamic_dimensions_are_marked() -> None:
    shape = parse_shape("(s32[<=8,4])")
    assert shape == TupleShape((ArrayShape(PrimitiveType.S32, (8, 4), None, (True, False)),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f33[2]", "unknown element type 'f33'"),
        ("f32", "expected a shape, found 'f32'"),
        ("f32[2", "expected ',', found the end"),
        ("f32[2,]", "expected a dimension size, found ']'"),
        ("f32[-2]", "expected a dimension size"),
        ("f32[9223372036854775808]", "expected a dimension size of at most 9223372036854775807"),
        ("f32[2,3]{0}", "expected a layout of 2 dimensions, found {"),
        ("f32[2]{}", "expected a layout of 1 dimensions, found {}"),
        ("f32[2]{0:P(f32[2])}", "a physical shape belongs to a sparse array"),
        ("f32[2]{0:S(1)E(4)}", "unknown, repeated or misplaced part 'E(4)'"),
        ("f32[2]{0:X(1)}", "unknown, repeated or misplaced part 'X(1)'"),
        ("b((f32[2], f32[2]))", "a buffer holds an array, found (f32[2], f32[2])"),
        ("b(b(f32[2]))", "a buffer holds an array, found b(f32[2])"),
        ("f32[]{}", "expected an opcode or a layout with a part, found '{}'"),
        ("token[2]", "token has no dimensions"),
        ("(f32[2] f32[2])", "expected ','"),
        ("f32[2] x", "expected the end, found 'x'"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(HloParseError) as caught:
        parse_shape(text)
    assert message in str(caught.value)
