"""The table of cells: after all other tests of this folder, each needed cell was computed, or is declared with a reason."""

from __future__ import annotations

import pytest

from spmd.hlo import Opcode
from tests.documents.op_cells import DOCUMENT, document, needed
from tests.spmd.op_matrix.cells import RECORDER, Edge
from tests.spmd.op_matrix.declared import DECLARED, reasons


@pytest.fixture
def recorded():
    """The cells of this run, if it ran the whole folder."""
    if not RECORDER.whole:
        pytest.skip("a part of the folder says nothing about the table")
    return frozenset(RECORDER.cells)


def shown(cells):
    return sorted(f"{opcode} {kind} {edge.value}" for opcode, kind, edge in cells)


def test_every_cell_is_computed_or_declared(recorded):
    assert shown(needed() - recorded - set(reasons())) == []


def test_nothing_is_declared_in_vain(recorded):
    """An entry all of whose cells are computed has to go."""
    open_cells = needed() - recorded
    assert [entry.reason for entry in DECLARED if open_cells.isdisjoint(entry.cells())] == []


def test_the_table_is_up_to_date(recorded):
    assert DOCUMENT.read_text(encoding="utf-8") == document(recorded)


def test_every_opcode_and_class_is_asked_for():
    """Only after-all is left out, which has no elements."""
    cells = needed()
    assert {o for o, _, _ in cells} == set(Opcode) - {Opcode.AFTER_ALL}
    assert {e for _, _, e in cells} == set(Edge)
