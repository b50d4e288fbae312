"""Each line of the grammar notes that is a whole instruction, read in a small program around it, and evaluated.

The lines stand here as the notes have them; where the notes themselves are at hand, none of them may be missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from spmd.errors import HloParseError, UnsupportedError
from spmd.evaluator import evaluate
from spmd.text.parser import parse_module
from spmd.verifier import verify
from tests.paths import SHARED

NOTES = SHARED / "design" / "hlo_text.md"
A, B = np.array([1, 2], np.float32), np.array([10, 20], np.float32)


@dataclass(frozen=True)
class Line:
    """``around`` is a program with @ where the line stands; ``value`` the flat output, or the kind of refusal."""

    around: str
    arguments: tuple[Any, ...]
    value: Any


_TWO = "ENTRY e { a = f32[2]{0} parameter(0) b = f32[2]{0} parameter(1) "

LINES: dict[str, Line] = {
    "ROOT %a.1 = f32[] add(b-2, %c_3)": Line(
        "ENTRY e { b-2 = f32[] parameter(0) %c_3 = f32[] parameter(1) @ }",
        (np.float32(1), np.float32(2)),
        [3],
    ),
    "p=f32[] parameter(0)": Line("ENTRY e { @ }", (), HloParseError),
    "%r = f32[4]{0} add(f32[4]{0} %a, f32[4]{0} %b)": Line(
        "@", (np.arange(4, dtype=np.float32), np.ones(4, np.float32)), [1, 2, 3, 4]
    ),
    "add(f32[2], f32[2])": Line("r = f32[2] @", (A, B), [11, 22]),
    "parameter(1)": Line(
        "ENTRY e { q = f32[2] @ p = f32[2] parameter(0) ROOT r = f32[2] subtract(p, q) }",
        (A, B),
        [-9, -18],
    ),
    "parameter(0)": Line("ENTRY e { ROOT p = f32[2] @ }", (A,), [1, 2]),
    "add(f32[2]{0} a, f32[2]{0} b)": Line(_TWO + "ROOT r = f32[2]{0} @ }", (A, B), [11, 22]),
    # A nested constant needs its shape: XLA refuses this one too.
    "add(f32[2]{0} negate(a), constant(2))": Line(
        _TWO + "ROOT r = f32[2]{0} @ }", (), HloParseError
    ),
    "r = add(a, b)": Line(_TWO + "ROOT @ }", (A, B), [11, 22]),
    "ROOT t = tuple(a, b)": Line(_TWO + "@ }", (A, B), [1, 2, 10, 20]),
    "add(%p#0, %p#1#0)": Line(
        "ENTRY e { p = (f32[2], (f32[2], s32[])) parameter(0) ROOT r = f32[2] @ }",
        (A, B, np.int32(0)),
        [11, 22],
    ),
    "constant(42)": Line("ENTRY e { ROOT c = s32[] @ }", (), [42]),
    "constant({ {1, 2}, {3, 4} })": Line("ENTRY e { ROOT c = f32[2,2] @ }", (), [1, 2, 3, 4]),
    "constant({})": Line("ENTRY e { ROOT c = f32[0] @ }", (), []),
    "constant({...})": Line("ENTRY e { ROOT c = f32[9] @ }", (), UnsupportedError),
    "constant(({1,2}, 3))": Line("ENTRY e { ROOT c = (s32[2], s32[]) @ }", (), [1, 2, 3]),
    "%s = ((f32[4]{0}), f32[2]{0}, s32[]) async-start(%p), calls=%wrapped": Line(
        "wrapped { q = f32[4]{0} parameter(0) ROOT h = f32[2]{0} slice(q), slice={[1:3]} }\n"
        "ENTRY e { %p = f32[4]{0} parameter(0) @ ROOT d = f32[2]{0} async-done(s) }",
        (np.arange(4, dtype=np.float32),),
        [1, 2],
    ),
}


@pytest.mark.parametrize("line", LINES)
def test_line(line: str) -> None:
    case = LINES[line]
    text = case.around.replace("@", line)
    if isinstance(case.value, type):
        with pytest.raises(case.value):
            evaluate(parse_module(text), *case.arguments)
        return
    module = parse_module(text)
    verify(module)
    outputs = evaluate(module, *case.arguments)
    assert [float(x) for out in outputs for x in np.ravel(out)] == case.value


@pytest.mark.skipif(not NOTES.exists(), reason="the grammar notes are not here")
def test_no_line_of_the_notes_is_missing() -> None:
    """A line is a piece of code that applies an opcode to operands; buffer types and NaN payloads are not."""
    pieces = re.findall(r"`([^`]+)`", NOTES.read_text(encoding="utf-8"))
    opcode = re.compile(r"(?:^|= *(?:\(.*\) |\S+ )?)(?!b\(|nan\()[a-z][a-z-]*\(.*\)")
    wanted = [p for p in pieces if opcode.search(p) and "to_apply={" not in p]
    assert [p for p in dict.fromkeys(wanted) if p not in LINES] == []
    assert len(wanted) >= len(LINES)
