"""Every opcode has every meaning, or a stated reason why not; the document says so."""

from __future__ import annotations

import pytest

from tests.documents.op_coverage import COLUMNS, DOCUMENT, HOLES, document, holes


@pytest.mark.parametrize("column", COLUMNS)
def test_holes_are_declared(column: str) -> None:
    found = holes(column)
    assert [opcode for opcode in found if opcode not in HOLES[column]] == []
    assert [
        opcode for opcode in HOLES[column] if opcode not in found
    ] == []  # filled: take it off the list


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document()
