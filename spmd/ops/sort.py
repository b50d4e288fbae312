"""sort (any number of operands moved by one comparator) and topk."""

from __future__ import annotations

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import SortAttrs, TopKAttrs
from spmd.ops.checks import (
    bare,
    check_callees,
    check_dims,
    check_signature,
    one_or_tuple,
    operand_array,
    same_type,
    scalar_of,
)
from spmd.ops.opdef import OpCost, define, not_counted
from spmd.shape import ArrayShape, PrimitiveType, Shape, TupleShape

_PRED = ArrayShape(PrimitiveType.PRED, ())


def infer_sort(instruction: HloInstruction) -> Shape:
    keys = operand_array(instruction, 0)
    check_dims((instruction.attrs_as(SortAttrs).dimension,), keys.rank, "dimensions")
    shapes = [operand_array(instruction, i) for i in range(instruction.num_operands)]
    if any(s.dims != keys.dims for s in shapes):
        raise ShapeError("sort operands must have equal sizes")
    return one_or_tuple(bare(s.element_type, s.dims) for s in shapes)


def verify_sort(instruction: HloInstruction) -> None:
    """Check that the comparator takes two scalars per operand, next to each other, and returns a pred."""
    check_callees(instruction, 1)
    pairs = tuple(scalar_of(x.shape) for x in instruction.operands for _ in range(2))
    check_signature(instruction.to_apply, pairs, "comparator")
    if not same_type(instruction.to_apply.root.shape, _PRED):
        raise ShapeError(f"comparator {instruction.to_apply.name} must return {_PRED}")


def sort_cost(instruction: HloInstruction) -> OpCost:
    """Count n log2 n comparisons, one flop each (XLA's rule)."""
    elements = operand_array(instruction, 0).num_elements
    return OpCost(flops=float(elements * max(0, elements - 1).bit_length()))


def infer_topk(instruction: HloInstruction) -> Shape:
    operand, k = operand_array(instruction, 0), instruction.attrs_as(TopKAttrs).k
    if not operand.dims or not 0 <= k <= operand.dims[-1]:
        raise ShapeError(f"k={k} does not fit the last dimension of {operand}")
    dims = (*operand.dims[:-1], k)
    return TupleShape((bare(operand.element_type, dims), bare(PrimitiveType.S32, dims)))


define(Opcode.SORT, infer_sort, None, verify_sort, sort_cost, applications=not_counted)
define(Opcode.TOPK, infer_topk, 1, applications=not_counted)
