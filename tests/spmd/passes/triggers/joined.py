"""Collectives of one kind that agree in all but their operands, some of them in a row: for combiners' triggers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, HloModule
from spmd.ops.attrs import CollectiveAttrs
from spmd.shape import PrimitiveType, TupleShape
from tests.spmd.passes.triggers.devices import (
    equal_groups,
    ids_of,
    meeting,
    reducing_mode,
    rewritten,
)
from tests.spmd.passes.triggers.programs import Program

#: Writes one collective of operands and attributes.
Write = Callable[[Sequence[HloInstruction], CollectiveAttrs], HloInstruction]


def joined(
    p: Program, element_type: PrimitiveType, write: Write, dimension: int | None = None
) -> HloModule:
    """Two that do not need each other and up to three more, of one operand or two; ``dimension``: what is cut or grows.

    Their groups are the same, in any form.
    """
    mode = reducing_mode(p)
    count = ids_of(p, mode)
    groups = equal_groups(p, count)
    results: list[HloInstruction] = []
    for i in range(p.integer(2, 5)):
        earlier = p.choose(results) if i > 1 and p.chance(0.4) else None
        operands = [
            _operand(p, element_type, dimension, earlier) for _ in range(p.choose((1, 1, 2)))
        ]
        attrs = meeting(p, mode, rewritten(p, groups, count), dimension)
        results.extend(parts(p, write(operands, attrs)))
    return p.module(*p.shuffled([p.after(x) for x in results]))


def parts(p: Program, x: HloInstruction) -> list[HloInstruction]:
    """The arrays of a collective's result."""
    if not isinstance(x.shape, TupleShape):
        return [x]
    return [p.b.get_tuple_element(x, i) for i in range(len(x.shape.elements))]


def _operand(
    p: Program, element_type: PrimitiveType, dimension: int | None, earlier: HloInstruction | None
) -> HloInstruction:
    dims = list(p.dims(1, 3, most=64))
    if dimension is not None:
        devices = p.result.num_partitions * p.result.replica_count
        dims = [*p.dims(dimension, dimension, most=16), devices * p.integer(1, 2), *p.dims(0, 1)]
    x = p.value(element_type, dims)
    if earlier is None:
        return x
    scalar = p.b.reduce(earlier, range(len(earlier.dims)), ReductionKind.SUM)
    return p.b.add(x, p.b.broadcast_scalar(scalar, dims))
