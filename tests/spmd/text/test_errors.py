"""Text that is not HLO: the message names file, line and column, and shows the line."""

from __future__ import annotations

import pytest

from spmd.errors import HloParseError
from spmd.text.parser import parse_module

HEAD = "HloModule m\n\nf {\n  x = f32[] parameter(0)\n}\n\nENTRY e {\n  a = f32[2,3]{1,0} parameter(0)\n"
LINE = HEAD.count("\n") + 1


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("  b = f32[2,3]{1,0} frobnicate(a)", 21, "unknown opcode 'frobnicate'"),
        ("  b = f32[2,3]{1,0} negate(a), frob={1}", 32, "unknown attribute 'frob' of negate"),
        ("  b = f32[2,3]{1,0} negate(c)", 28, "no instruction 'c' is defined before this one"),
        ("  a = f32[2,3]{1,0} negate(a)", 3, "instruction 'a' is defined twice"),
        ("  b = f33[2,3]{1,0} negate(a)", 7, "unknown element type 'f33'"),
        ("  b = f32[2,3]{0} negate(a)", 15, "expected a layout of 2 dimensions, found {"),
        ("  b = f32[-2]{0} negate(a)", 11, "expected a dimension size, found '-2'"),
        ("  b= f32[2,3] negate(a)", 4, "expected a blank between 'b' and '='"),
        ("  f32 = f32[2,3] negate(a)", 3, "'f32' is a reserved word, not a name"),
        ("  b = f32[2,3] negate(f32[3,2] a)", 32, "operand a is written with shape f32[3,2]"),
        ("  b = f32[3,2] transpose(a)", 16, "transpose needs the attribute dimensions="),
        ("  b = f32[3,2] transpose(a), dimensions={1 0}", 44, "expected ',', found '0'"),
        ("  b = f32[3,2] transpose(a) dimensions={1,0}", 39, "expected ',' before an attribute"),
        ("  b = f32[3,2] transpose(a), dimensions={1,0},", 1, "expected an attribute, found '}'"),
        ("  b = f32[3,2] transpose(a), dimensions={1,0}, dimensions={1,0}", 48, "given twice"),
        ("  b = pred[2,3] compare(a, a), direction=XX", 42, "direction is one of EQ, NE"),
        ("  b = f32[] call(a), to_apply=g", 31, "no computation 'g' is defined before this one"),
        ("  b = f32[2,3] negate(a), sharding={foo}", 37, "unknown sharding 'foo'"),
        ("  b = f32[2,3] negate(a), sharding={devices=[2,2]0,1}", 50, "expected 4 device ids"),
        ("  b = s8[] constant(200)", 21, "200 does not fit in s8"),
        ("  b = f32[] parameter(2)", 1, "computation 'e' has no parameter 1"),
        ("  b = f32[] parameter(0)", 3, "two parameters 0"),
        ("  b = f32[] parameter(-1)", 13, "a parameter number cannot be -1"),
        ("  b = token[] negate(a), metadata={op_name=3}", 44, "expected a string"),
        ("  b = f32[2,3] add(a, a", 1, "expected ',', found '}'"),
    ],
)
def test_place_and_message(line: str, column: int, message: str) -> None:
    text = f"{HEAD}{line}\n}}\n"
    with pytest.raises(HloParseError) as caught:
        parse_module(text, "step.hlo")
    error = caught.value
    assert message in error.message
    assert error.location is not None
    assert error.location.file == "step.hlo"
    if column > 1:
        assert (error.location.line, error.location.column) == (LINE, column)
        assert error.line == line
        assert str(error).splitlines()[-1].index("^") == column + 1


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "1:1", "expected a computation, found the end"),
        ("HloModule m", "1:12", "expected a computation, found the end"),
        ("HloModule m, foo=3\nf { a = f32[] parameter(0) }", "1:14", "unknown header attribute"),
        ("HloModule m\nf {\n}", "2:3", "computation 'f' has no instructions"),
        ("HloModule m\nf {\n a = f32[] parameter(0)\n", "4:1", "found the end"),
        ("f { a = f32[] parameter(0) }\nf { a = f32[] parameter(0) }", "2:1", "defined twice"),
        (
            "ENTRY f { a = f32[] parameter(0) }\nENTRY g { a = f32[] parameter(0) }",
            "2:7",
            "one ENTRY",
        ),
        ("f { ROOT a = f32[] parameter(0) ROOT b = f32[] negate(a) }", "1:38", "one ROOT"),
        ("f { ROOT = f32[] parameter(0) }", "1:10", "expected an instruction, found '='"),
        ("ENTRY /* x */ e { ROOT a = f32[] parameter(1) }", "1:17", "has no parameter 0"),
        ("f { ENTRY = f32[] parameter(0) }", "1:5", "'ENTRY' is a reserved word"),
        ("HloModule m\nENTRY {\n a = f32[] parameter(0) }", "2:7", "expected a computation"),
        ("/* no end\nf { a = f32[] parameter(0) }", "1:1", "comment without an end"),
        ("HloModule m, num_partitions=0\nf { a = f32[] parameter(0) }", "1:29", "at least 1"),
        ("HloModule m, input_output_alias={ {0}: 1 }\nf { a = f32[] constant(0) }", "1:40", "'('"),
    ],
)
def test_modules(text: str, place: str, message: str) -> None:
    with pytest.raises(HloParseError) as caught:
        parse_module(text)
    assert str(caught.value).startswith(f"<text>:{place}: ")
    assert message in str(caught.value)


def test_long_lines_are_cut_around_the_error() -> None:
    operands = ", ".join(["a"] * 500)
    with pytest.raises(HloParseError) as caught:
        parse_module(f"f {{ a = f32[] parameter(0)\n t = tuple({operands}, nope, {operands}) }}")
    *_, excerpt, caret = str(caught.value).splitlines()
    assert len(excerpt) < 210
    assert excerpt[caret.index("^") :].startswith("nope")
