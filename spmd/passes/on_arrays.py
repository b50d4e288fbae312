"""Functions of scalars written as operations on arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.reduction import through_annotations
from spmd.shape import ArrayShape


def on_arrays(
    function: Iterable[HloInstruction],
    arrays: Mapping[HloInstruction, HloInstruction],
    b: Builder,
) -> dict[HloInstruction, HloInstruction]:
    """Return the array of each instruction of an elementwise function, operands first. The parameters' ``arrays`` have
    one size.
    """
    dims = next(iter(arrays.values())).dims
    made = dict(arrays)
    for x in function:
        if x in made:
            continue
        if (behind := through_annotations(x)) is not x:
            made[x] = made[behind]
            continue
        if x.opcode is Opcode.CONSTANT:
            made[x] = b.broadcast_scalar(b.computation.add(x.clone(x.shape, ())), dims)
            continue
        shape = ArrayShape(x.array_shape.element_type, dims)
        copy = x.clone(shape, [made[operand] for operand in x.operands])
        if not copy.annotations.metadata:
            copy.annotations = b.annotations
        made[x] = b.computation.add(copy)
    return made
