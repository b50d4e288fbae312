"""The table of operations that random programs are made of: name, weight, function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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


OPERATIONS: list[Entry] = []


def operation(weight: float, *, nested: bool = True) -> Callable[[Operation], Operation]:
    def register(write: Operation) -> Operation:
        OPERATIONS.append(Entry(write.__name__, weight, write, nested))
        return write

    return register
