"""Calls of GPU libraries that correspond to one operation of HLO: triangular solve, sort, top-k."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.builder import Builder
from spmd.errors import UnsupportedError
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import CompareAttrs, Opcode
from spmd.library_calls.registry import LIBRARY_CALLS, Values, require_operands
from spmd.library_calls.settings import settings_of
from spmd.ops.attrs import SortAttrs, TopKAttrs, TriangularSolveAttrs
from spmd.ops.checks import result_elements
from spmd.shape import ArrayShape, as_array

_TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


@LIBRARY_CALLS.register("__cublas$triangularSolve")
def triangular_solve(
    call: HloInstruction, operands: Sequence[HloInstruction], b: Builder
) -> Values:
    require_operands(call, operands, 2)
    settings = settings_of(call)
    transpose = settings.text("transpose_a", "NO_TRANSPOSE")
    if transpose not in _TRANSPOSES:
        raise settings.wrong("transpose_a")
    attrs = TriangularSolveAttrs(
        settings.flag("left_side"),
        settings.flag("lower"),
        settings.flag("unit_diagonal"),
        transpose,
    )
    return (b.create(Opcode.TRIANGULAR_SOLVE, operands, attrs),)


@LIBRARY_CALLS.register("__cub$DeviceRadixSort", "__cub$DeviceRadixSortUnassignedScratchSize")
def radix_sort(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    """Sort keys, and values with them, along the last dimension by the keys' bits: floats in total order."""
    compare = _by_first(call, operands, settings_of(call).flag("descending"), b)
    attrs = SortAttrs(len(operands[0].dims) - 1, is_stable=True)
    result = b.create(Opcode.SORT, operands, attrs, calls=(compare,))
    if len(operands) == 1:
        return (result,)
    return tuple(b.get_tuple_element(result, i) for i in range(len(operands)))


def _by_first(
    call: HloInstruction, operands: Sequence[HloInstruction], descending: bool, b: Builder
) -> HloComputation:
    module = b.scope.module
    inside = b.within(module.new_computation(f"{call.name}_order"))
    module.computations.insert(0, module.computations.pop())  # callees precede their callers
    types = [operand.array_shape.element_type for operand in operands for _ in range(2)]
    left, right, *_ = [inside.parameter(i, ArrayShape(t, ())) for i, t in enumerate(types)]
    order = "TOTALORDER" if types[0].is_floating else ""
    attrs = CompareAttrs("GT" if descending else "LT", order)
    inside.computation.root = inside.create(Opcode.COMPARE, (left, right), attrs)
    return inside.computation


@LIBRARY_CALLS.register("__gpu$TopK")
def top_k(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    """Return the largest along the last dimension, or the smallest if the call compares so, and their positions."""
    require_operands(call, operands, 1)
    count = as_array(result_elements(call.shape)[0]).dims[-1]
    compares = [computation.root.attrs for computation in call.called_computations]
    if not all(isinstance(attrs, CompareAttrs) for attrs in compares):
        raise UnsupportedError(f"{call!r}: a comparison of another form")
    smallest = any(isinstance(a, CompareAttrs) and a.direction in ("LT", "LE") for a in compares)
    result = b.create(Opcode.TOPK, operands, TopKAttrs(count, largest=not smallest))
    return tuple(b.get_tuple_element(result, i) for i in range(2))
