"""The table of opcodes and edge classes of the op tests: docs/internals/op_cells.md.

python -m tests.documents.op_cells        run the op tests and write the table anew
"""

from __future__ import annotations

import sys
from collections.abc import Set
from functools import cache

from spmd.hlo import Opcode
from tests.paths import ROOT, TESTS
from tests.spmd.op_matrix import allowed
from tests.spmd.op_matrix.cells import RECORDER, Cell, Edge, edges_of
from tests.spmd.op_matrix.declared import DECLARED, reasons

DOCUMENT = ROOT / "docs" / "internals" / "op_cells.md"
OP_TESTS = TESTS / "spmd" / "op_matrix"


@cache
def needed() -> frozenset[Cell]:
    """Every opcode with every element type it takes and every class that the type has."""
    return frozenset(
        (opcode, kind, edge)
        for opcode in Opcode
        for kind in allowed.types_of(str(opcode))
        for edge in edges_of(kind)
    )


def document(recorded: Set[Cell]) -> str:
    recorded = recorded - set(reasons())
    tested, declared = needed() & recorded, needed() - recorded
    lines = [
        "# Op tests: opcode, element type, edge class",
        "",
        "Written by `python -m tests.documents.op_cells`, which runs tests/spmd/op_matrix; a test of that folder holds it up to date and",
        "fails for a cell that is neither computed nor declared.",
        "",
        f"**{len(tested)} of {len(needed())} cells are computed and compared with a definition that does not come from the",
        f"evaluator** (Fractions, mpmath, written-out sums, positions of elements); {len(declared)} are declared below.",
        "",
        "A cell counts the element types of the opcode's data that have the class: `17` all 17 were computed, `15/17` two are",
        "declared, blank: no type that the opcode takes has it. What counts is measured: while the tests run, each executed",
        "instruction notes the classes of the operands it was given. *least* and *greatest* are those of the finite numbers",
        "(for an unsigned integer the least is 0), *ordinary* is what is in none of the other classes; *empty dim* and",
        "*size-1 dim* are dimensions of operands or results.",
        "",
        "| opcode | types | " + " | ".join(edge.value for edge in Edge) + " |",
        "|---|" + "---|" * (len(Edge) + 1),
    ]
    for opcode in Opcode:
        kinds = allowed.types_of(str(opcode))
        row = [_counted(opcode, kinds, edge, recorded) for edge in Edge]
        lines.append(f"| {opcode} | {len(kinds)} | {' | '.join(row)} |")
    lines += ["", "## Declared", "", "| opcodes | classes | cells | why |", "|---|---|---|---|"]
    for entry in DECLARED:
        cells = needed() & set(entry.cells()) - recorded
        names = ", ".join(map(str, entry.opcodes))
        classes = ", ".join(e.value for e in entry.edges) if len(entry.edges) < len(Edge) else "all"
        lines.append(f"| {names} | {classes} | {len(cells)} | {entry.reason} |")
    return "\n".join(lines) + "\n"


def _counted(opcode: Opcode, kinds: tuple[str, ...], edge: Edge, recorded: Set[Cell]) -> str:
    having = [kind for kind in kinds if edge in edges_of(kind)]
    done = sum((opcode, kind, edge) in recorded for kind in having)
    if not having:
        return ""
    return str(done) if done == len(having) else f"{done}/{len(having)}"


def main() -> int:
    import pytest

    code = pytest.main(
        ["-q", "--no-header", "--ignore", str(OP_TESTS / "test_cells.py"), str(OP_TESTS)]
    )
    missing = needed() - RECORDER.cells - set(reasons())
    for opcode, kind, edge in sorted(missing, key=lambda c: (str(c[0]), c[1], c[2].value)):
        print(f"neither computed nor declared: {opcode} {kind} {edge.value}")
    if code == 0:
        DOCUMENT.write_text(document(RECORDER.cells), encoding="utf-8")
    return int(code) or bool(missing)


if __name__ == "__main__":
    sys.exit(main())
