"""No opcode stays untested: each stands in the table of element types, or in the text of a program that a test runs."""

from __future__ import annotations

import re
from pathlib import Path

from spmd.hlo import Opcode
from spmd.shape import PrimitiveType
from tests.spmd.op_matrix import allowed
from tests.spmd.op_matrix.formats import COMPLEX, FLOATS, INTEGERS
from tests.spmd.op_matrix.values import ALL_TYPES

HERE = Path(__file__).parent


def test_every_opcode_is_run():
    tables = {*allowed.UNARY, *allowed.BINARY}
    sources = "".join(p.read_text(encoding="utf-8") for p in sorted(HERE.glob("*.py")))
    programs = set(re.findall(r"([a-z][a-z0-9-]*)\(", sources))
    quoted = set(re.findall(r'"([a-z][a-z0-9-]*)"', sources))
    missing = [str(o) for o in Opcode if str(o) not in tables | programs | quoted]
    assert missing == []


def test_every_element_type_is_in_the_tables():
    assert set(ALL_TYPES) == {str(kind) for kind in PrimitiveType}
    assert len(ALL_TYPES) == 1 + len(INTEGERS) + len(FLOATS) + len(COMPLEX)
