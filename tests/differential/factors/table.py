"""A table of what every op does to each dimension of its operands and results, written from the op's definition.

The counts of random programs (coverage.py) are taken by this table and not by the partitioner's rules: a rule that
calls a dimension whole, or forgets it, must not make the count of what was tried smaller.

    pass-through      one dimension of operands and results, taken element by element
    reduction         a dimension whose elements are combined
    permutation       elements of the dimension change their place: windows, slices, pads, joins, mirrors
    indexed           which elements are taken or written is data
    split, merge      one dimension that becomes several, several that become one
    manual            a dimension that an edge of a manual region cuts, or puts together, along manual axes
    need-replication  every element of the result depends on the whole dimension
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import CustomCallAttrs
from spmd.shape import ArrayShape, Shape, leaves

PASS, REDUCTION, PERMUTATION, INDEXED = "pass-through", "reduction", "permutation", "indexed"
SPLIT, MERGE, MANUAL, WHOLE = "split", "merge", "manual", "need-replication"


@dataclass(frozen=True)
class Place:
    """Dimension ``dim`` of array ``tensor``: operands' arrays are counted through, then results'."""

    is_result: bool
    tensor: int
    dim: int


@dataclass(frozen=True)
class Factor:
    kind: str
    places: tuple[Place, ...]


Factors = Iterator[Factor]
Rule = Callable[[HloInstruction], Factors]

_RULES: dict[str, Rule] = {}
#: The kinds of factor that each row (an opcode, or a custom call with its target) can have.
KINDS: dict[str, tuple[str, ...]] = {}


def row_of(instruction: HloInstruction) -> str:
    """The row of the table that an instruction is counted in."""
    if isinstance(instruction.attrs, CustomCallAttrs):
        return f"custom-call {instruction.attrs.target}"
    return instruction.opcode.value


def factors_of(instruction: HloInstruction) -> list[Factor]:
    """The factors of one instruction; none for a row that the table does not have."""
    rule = _RULES.get(row_of(instruction))
    return list(rule(instruction)) if rule is not None else []


def arrays(shape: Shape) -> list[ArrayShape]:
    """The arrays of a shape, in leaf order."""
    return [leaf for _, leaf in leaves(shape) if isinstance(leaf, ArrayShape)]


def rows(kinds: Sequence[str], *rows: Opcode | str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for row in rows:
            name = row.value if isinstance(row, Opcode) else row
            _RULES[name] = rule
            KINDS[name] = tuple(kinds)
        return rule

    return register


def factor(kind: str, operands: dict[int, int], results: dict[int, int]) -> Factor:
    """``operands[i]``: the dimension of operand array i; ``results[j]``: of result array j."""
    return Factor(
        kind,
        (
            *(Place(False, i, d) for i, d in operands.items()),
            *(Place(True, j, d) for j, d in results.items()),
        ),
    )


def everywhere(count: int, dim: int) -> dict[int, int]:
    return dict.fromkeys(range(count), dim)
