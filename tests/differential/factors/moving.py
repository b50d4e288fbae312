"""Elements moved, at places that the program fixes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs, PadAttrs, SliceAttrs
from tests.differential.factors.table import (
    MERGE,
    PASS,
    PERMUTATION,
    SPLIT,
    Factor,
    Factors,
    Place,
    everywhere,
    factor,
    rows,
)


# ---- elements moved
@rows((PASS,), Opcode.TRANSPOSE)
def _transpose(instruction: HloInstruction) -> Factors:
    for position, d in enumerate(instruction.attrs_as(DimensionsAttrs).dimensions):
        yield factor(PASS, {0: d}, {0: position})


@rows((PASS,), Opcode.BROADCAST)
def _broadcast(instruction: HloInstruction) -> Factors:
    source = {p: d for d, p in enumerate(instruction.attrs_as(DimensionsAttrs).dimensions)}
    for position in range(instruction.array_shape.rank):
        operands = {0: source[position]} if position in source else {}
        yield factor(PASS, operands, {0: position})


@rows((PASS, SPLIT, MERGE), Opcode.RESHAPE, Opcode.BITCAST)
def _reshape(instruction: HloInstruction) -> Factors:
    """Runs of dimensions with equal products belong together; of several that become several, both kinds are meant."""
    before, after = instruction.operand(0).dims, instruction.dims
    if 0 in before:
        return
    for sources, results in _runs(before, after):
        places = (*(Place(False, 0, d) for d in sources), *(Place(True, 0, d) for d in results))
        if len(sources) == len(results) == 1:
            yield Factor(PASS, places)
        if len(results) > 1:
            yield Factor(SPLIT, places)
        if len(sources) > 1:
            yield Factor(MERGE, places)


def _runs(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Dimensions other than those of size 1, cut into the shortest runs of equal products."""
    left = [d for d, n in enumerate(before) if n != 1]
    right = [d for d, n in enumerate(after) if n != 1]
    while left:
        sources, results = [left.pop(0)], [right.pop(0)]
        a, b = before[sources[0]], after[results[0]]
        while a != b:
            if a < b:
                sources.append(left.pop(0))
                a *= before[sources[-1]]
            else:
                results.append(right.pop(0))
                b *= after[results[-1]]
        yield sources, results


@rows((PASS, PERMUTATION), Opcode.REVERSE)
def _reverse(instruction: HloInstruction) -> Factors:
    reversed_ = instruction.attrs_as(DimensionsAttrs).dimensions
    for d in range(instruction.array_shape.rank):
        yield factor(PERMUTATION if d in reversed_ else PASS, {0: d}, {0: d})


@rows((PASS, PERMUTATION), Opcode.SLICE)
def _slice(instruction: HloInstruction) -> Factors:
    attrs = instruction.attrs_as(SliceAttrs)
    for d, size in enumerate(instruction.operand(0).dims):
        whole = (attrs.starts[d], attrs.limits[d], attrs.strides[d]) == (0, size, 1)
        yield factor(PASS if whole else PERMUTATION, {0: d}, {0: d})


@rows((PASS, PERMUTATION), Opcode.PAD)
def _pad(instruction: HloInstruction) -> Factors:
    attrs = instruction.attrs_as(PadAttrs)
    for d in range(instruction.array_shape.rank):
        whole = (attrs.low[d], attrs.high[d], attrs.interior[d]) == (0, 0, 0)
        yield factor(PASS if whole else PERMUTATION, {0: d}, {0: d})


@rows((PASS, PERMUTATION), Opcode.CONCATENATE)
def _concatenate(instruction: HloInstruction) -> Factors:
    (joined,) = instruction.attrs_as(DimensionsAttrs).dimensions
    for d in range(instruction.array_shape.rank):
        kind = PERMUTATION if d == joined else PASS
        yield factor(kind, everywhere(instruction.num_operands, d), {0: d})
