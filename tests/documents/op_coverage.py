"""The table opcode × meaning, built from the registries: docs/internals/op_coverage.md.

python -m tests.documents.op_coverage        write the table anew
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import partitioner.spmd_partitioner  # noqa: F401 - fills the registries
import runtime.compile  # noqa: F401 - fills the registries
from partitioner.registry import PARTITIONERS, PROPAGATORS, SHARDING_RULES
from runtime.buffers.linearizer import VISITORS
from runtime.buffers.view_ops import VIEW_RULES
from runtime.lowering import LOWERINGS
from spmd.evaluator.registry import EVALUATORS, IN_STEPS, ON_DEVICE
from spmd.hlo import Opcode
from spmd.passes.algebraic.rules import IDENTITIES
from tests.paths import ROOT

DOCUMENT = ROOT / "docs" / "internals" / "op_coverage.md"

#: Opcodes without an entry of their own, and the reasons. Any other opcode without an entry is a mistake.
_ASYNC = "asynchronous forms are made after partitioning"
HOLES: dict[str, dict[Opcode, str]] = {
    "evaluator": {
        Opcode.PARAMETER: "an argument",
    },
    "partitioner": {
        Opcode.PARAMETER: "given by annotations or callers",
        Opcode.CALL: "inlined before",
        Opcode.FUSION: "opened before",
        **dict.fromkeys(
            (
                Opcode.ALL_GATHER_START,
                Opcode.ALL_GATHER_DONE,
                Opcode.ALL_REDUCE_START,
                Opcode.ALL_REDUCE_DONE,
                Opcode.COLLECTIVE_PERMUTE_START,
                Opcode.COLLECTIVE_PERMUTE_DONE,
                Opcode.ASYNC_START,
                Opcode.ASYNC_UPDATE,
                Opcode.ASYNC_DONE,
                Opcode.COPY_START,
                Opcode.COPY_DONE,
            ),
            _ASYNC,
        ),
        **dict.fromkeys(
            (
                Opcode.AFTER_ALL,
                Opcode.RAGGED_ALL_TO_ALL,
                Opcode.RECV,
                Opcode.RECV_DONE,
                Opcode.SCAN,
                Opcode.SEND,
                Opcode.SEND_DONE,
            ),
            "no rule: operands and result are replicated",
        ),
    },
    "runtime": dict.fromkeys(
        (Opcode.RECV, Opcode.RECV_DONE, Opcode.SEND, Opcode.SEND_DONE),
        "a collective-permute before, where a channel's halves stand side by side",
    )
    | {Opcode.PARAMETER: "an argument", Opcode.ASYNC_UPDATE: "left out before"}
    | dict.fromkeys((Opcode.RNG, Opcode.RNG_GET_AND_UPDATE_STATE, Opcode.SCAN), "expanded before")
    | dict.fromkeys(
        (Opcode.SET_DIMENSION_SIZE, Opcode.DYNAMIC_RESHAPE),
        "padded before; the evaluator runs what is not known",
    ),
}


def entries(opcode: Opcode, tables: Mapping[str, object]) -> str:
    return ", ".join(word for word, table in tables.items() if opcode in table)  # type: ignore[operator]


COLUMNS: dict[str, Callable[[Opcode], str]] = {
    "evaluator": lambda o: entries(
        o, {"value": EVALUATORS, "device": ON_DEVICE, "steps": IN_STEPS}
    ),
    "partitioner": lambda o: entries(
        o, {"rule": SHARDING_RULES, "own": PARTITIONERS, "propagation": PROPAGATORS}
    ),
    "runtime": lambda o: entries(
        o, {"thunk": LOWERINGS, "linearizer": VISITORS, "view": VIEW_RULES}
    ),
}


def holes(column: str) -> list[Opcode]:
    """Opcodes without an entry in ``column``."""
    return [opcode for opcode in Opcode if not COLUMNS[column](opcode)]


def document() -> str:
    lines = [
        "# Op coverage",
        "",
        "Built from the registries by `python -m tests.documents.op_coverage`; a test holds it up to date.",
        "",
        "* evaluator: `value` from operands alone, `device` with the device's own state, `steps` meeting other devices",
        "* partitioner: `rule` factors, `own` partitioning function, `propagation` its own way into the value graph",
        "* runtime: `thunk` that runs it, `linearizer` without a thunk of its own, `view` of its operand's memory",
        "* identities: rewrites of the algebraic simplifier that start at the opcode",
        "",
        "With which element types and edge values each opcode is tested stands in [op_cells.md](op_cells.md).",
        "",
        "| opcode | evaluator | partitioner | runtime | identities |",
        "|---|---|---|---|---|",
    ]
    for opcode in Opcode:
        cells = [
            COLUMNS[column](opcode) or f"({HOLES[column].get(opcode, '?')})" for column in COLUMNS
        ]
        count = len(IDENTITIES.get(opcode, ()))
        lines.append(f"| {opcode} | {' | '.join(cells)} | {count or ''} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
