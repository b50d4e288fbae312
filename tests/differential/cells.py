"""The cells that random programs are counted in: row x kind of factor x how the dimension is split.

    even           shards divide the size
    uneven         the size is larger than the number of shards, which do not divide it
    size < shards  some device holds nothing but padding
    partial        the dimension is split, and other axes hold copies of the value

A cell that no program can reach stands in IMPOSSIBLE with its reason, and nowhere else.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.differential.factors import KINDS

EVEN, UNEVEN, SMALL, PARTIAL = "even", "uneven", "size < shards", "partial"
COLUMNS = (EVEN, UNEVEN, SMALL, PARTIAL)


@dataclass(frozen=True, order=True)
class Cell:
    row: str
    kind: str
    column: str


_CUT = "an edge of a manual region cuts a dimension into equal parts"
#: (row or "", kind or "", column or "") -> why; "" stands for all.
IMPOSSIBLE: dict[tuple[str, str, str], str] = {
    ("", "manual", UNEVEN): _CUT,
    ("", "manual", SMALL): _CUT,
    ("copy", "", ""): "a copy is removed before shardings are read",
}


#: Opcodes that the partitioner has a rule or a function for and that are not counted, with the reason.
NOT_COUNTED: dict[str, str] = {
    "partition-id": "a scalar",
    "replica-id": "a scalar",
    "mulhi": "elementwise: split as multiply is, which is counted",
    "add-dependency": "its array stands still beside a token",
    "dynamic-reshape": "sizes known only at run time are taken out before",
    "set-dimension-size": "sizes known only at run time are taken out before",
    "infeed": "no input of a test reaches it: tests/launch/data/test_feeds.py feeds it",
    "outfeed": "it gives no result: tests/launch/data/test_feeds.py looks at what it gives",
    "rng": "its numbers come from the device: there is nothing to compare them with",
    "rng-get-and-update-state": "its numbers come from the device: there is nothing to compare them with",
}


def impossible(cell: Cell) -> str | None:
    """Why no program reaches ``cell``; None where some do."""
    for (row, kind, column), reason in IMPOSSIBLE.items():
        if row in ("", cell.row) and kind in ("", cell.kind) and column in ("", cell.column):
            return reason
    return None


def every_cell() -> tuple[Cell, ...]:
    return tuple(
        Cell(row, kind, column) for row in KINDS for kind in KINDS[row] for column in COLUMNS
    )


#: Kinds of factor that other programs hardly ever split: aimed at several times as often.
_RARE = {
    ("all-gather", "need-replication"), ("all-to-all", "need-replication"), ("all-to-all", "pass-through"),
    ("bitcast", "merge"), ("bitcast", "split"), ("bitcast-convert", "need-replication"),
    ("cholesky", "need-replication"), ("collective-permute", "pass-through"),
    ("gather", "need-replication"), ("gather", "permutation"),
    ("reduce-scatter", "need-replication"), ("reduce-scatter", "pass-through"), ("reshape", "split"),
    ("scatter", "need-replication"), ("scatter", "permutation"), ("triangular-solve", "need-replication"),
    ("custom-call SPMDFullToShardShape", "pass-through"), ("custom-call SPMDShardToFullShape", "pass-through"),
}  # fmt: skip


def _aims() -> tuple[Cell, ...]:
    """The cells that can be reached, rare ones several times, in an order of no meaning: neighbours in it should have
    little in common.
    """
    cells = [
        cell
        for cell in sorted(every_cell())
        if impossible(cell) is None
        for _ in range((2 if cell.column == SMALL else 1) * (3 if _is_rare(cell) else 1))
    ]
    random.Random(0).shuffle(cells)
    return tuple(cells)


def _is_rare(cell: Cell) -> bool:
    return (cell.row, cell.kind) in _RARE


CELLS = _aims()


def column_of(size: int, shards: int) -> str | None:
    """Return the column of a split dimension; None where nothing is split, or there is nothing to split."""
    if shards == 1 or size == 0:
        return None
    if size % shards == 0:
        return EVEN
    return UNEVEN if size > shards else SMALL
