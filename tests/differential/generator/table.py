"""The table of operations that random programs are made of: name, weight, function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spmd.hlo import Opcode
from tests.differential.generator.writer import Value, Writer

#: Writes one operation (or a few) and returns its result, None where the pool has nothing to apply it to.
Operation = Callable[[Writer], Value | None]


@dataclass(frozen=True)
class Entry:
    name: str
    weight: float
    write: Operation
    #: May stand in a loop body or branch, where no new parameter can be made.
    nested: bool = True
    #: Rows of the table of counts that it writes.
    rows: tuple[str, ...] = ()
    #: Puts shardings on what it writes by itself (steering.py): not all of it lies on one side of an edge.
    steers: bool = False


OPERATIONS: list[Entry] = []


def operation(
    weight: float, *rows: Opcode | str, nested: bool = True, steers: bool = False
) -> Callable[[Operation], Operation]:
    """``rows``: what it writes, by opcode, or by the table's name of a custom call."""
    names = tuple(row.value if isinstance(row, Opcode) else row for row in rows)

    def register(write: Operation) -> Operation:
        OPERATIONS.append(Entry(write.__name__, weight, write, nested, names, steers))
        return write

    return register
