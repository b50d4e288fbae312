"""collective-permute in place, (input, output, input starts, output starts): it moves slices of ``slice_sizes``."""

from __future__ import annotations

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.ops.attrs import CollectivePermuteAttrs
from spmd.ops.checks import result_elements
from spmd.shape import ArrayShape, TupleShape, as_array, as_tuple

_IN_PLACE_OPERANDS = 4


def in_place(instruction: HloInstruction) -> bool:
    return bool(instruction.attrs_as(CollectivePermuteAttrs).slice_sizes)


def check_in_place(instruction: HloInstruction) -> None:
    """Check that buffers are arrays or tuples of equally many; each has a start per dimension, or several such tuples
    of starts.
    """
    if instruction.num_operands != _IN_PLACE_OPERANDS:
        raise ShapeError(
            f"in place, {instruction.opcode} takes (input, output, input starts, output starts), "
            f"found {instruction.num_operands} operands"
        )
    source, target, *starts = (x.shape for x in instruction.operands)
    if len(result_elements(source)) != len(result_elements(target)):
        raise ShapeError(f"the input {source} and the output {target} differ in buffers")
    for shape, given in zip((source, target), starts, strict=True):
        start_tuple = as_tuple(given)
        each = start_tuple.elements if isinstance(shape, TupleShape) else (start_tuple,)
        if len(each) != len(result_elements(shape)):
            raise ShapeError(f"the starts {given} do not fit the buffers {shape}")
        for buffer, start in zip(result_elements(shape), each, strict=True):
            _check_starts(as_array(buffer), as_tuple(start))


def _check_starts(buffer: ArrayShape, starts: TupleShape) -> None:
    several = all(isinstance(s, TupleShape) for s in starts.elements)
    for start in starts.elements if several else (starts,):
        if len(as_tuple(start).elements) != buffer.rank:
            raise ShapeError(f"the starts {start} are not one per dimension of {buffer}")


def copies_per_device(instruction: HloInstruction) -> int:
    """Return how often a device may be source (and target): once; in place, once per start index of a buffer (XLA's
    rule).
    """
    if not in_place(instruction):
        return 1
    starts = as_tuple(instruction.operand(2).shape)
    if isinstance(instruction.operand(0).shape, TupleShape):
        starts = as_tuple(starts.elements[0])
    return max(1, len(starts.elements))
