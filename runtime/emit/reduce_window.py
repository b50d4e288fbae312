"""Lowering of reduce-window and select-and-scatter to kernels, or to the reference evaluator."""

from __future__ import annotations

import math

from collectives.communicator.group import can_reduce
from runtime.emit.reference import emit_with
from runtime.emit.scalar_program import scalar_program
from runtime.lowering import LOWERINGS, Lowering, Views
from runtime.program.records.reduce import (
    ReduceWindowKernel,
    SelectAndScatterKernel,
    SelectedElements,
)
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.hlo.opcode import CompareAttrs
from spmd.ops.attrs import WindowAttrs
from spmd.ops.reduction import reduction_kind
from spmd.shape import ArrayShape


def reduce_window_kernel(instruction: HloInstruction) -> ReduceWindowKernel | None:
    """Return the kernel of a reduce-window, or None if the reference evaluator must compute it.

    The evaluator computes reduce-windows with several inputs, with rank 0, or with a reducer that has no native code.
    """
    window = instruction.attrs_as(WindowAttrs).window
    if instruction.num_operands != 2 or window.rank == 0:
        return None
    kind = instruction.array_shape.element_type
    reduction = reduction_kind(instruction.to_apply)
    if reduction is not None and can_reduce(kind.numpy, reduction):
        return ReduceWindowKernel(window, reduction)
    program = scalar_program(instruction.to_apply)
    if program is None or program.parameters != (kind, kind):
        return None
    return ReduceWindowKernel(window, program)


#: Direction of the comparison a op b -> direction of the equivalent comparison of b with a.
_MIRRORED = {"GE": "LE", "GT": "LT", "LE": "GE", "LT": "GT"}


def _direction(select: HloComputation) -> str | None:
    """Return the direction in which ``select`` compares its first parameter with its second.

    Returns None if it is no plain comparison GE, GT, LE or LT of its two parameters.
    """
    root = select.root
    if root.opcode is not Opcode.COMPARE:
        return None
    attrs = root.attrs_as(CompareAttrs)
    if attrs.direction not in _MIRRORED or attrs.type == "TOTALORDER":
        return None
    if root.operands == select.parameters:
        return attrs.direction
    mirrored = root.operands == tuple(reversed(select.parameters))
    return _MIRRORED[attrs.direction] if mirrored else None


def select_and_scatter_kernel(instruction: HloInstruction) -> SelectAndScatterKernel | None:
    """Return the kernel of a select-and-scatter, or None if the reference evaluator must compute it.

    The evaluator computes select-and-scatters whose functions or type have no native code, with base dilation, or with
    an empty operand.
    """
    select, scatter = instruction.called_computations
    window = instruction.attrs_as(WindowAttrs).window
    operand = instruction.operand(0).array_shape
    kind = operand.element_type
    direction, reduction = _direction(select), reduction_kind(scatter)
    known = kind.bits >= (16 if kind.is_floating else 8) and not kind.is_complex
    if (
        direction is None
        or reduction is None
        or not known
        or not can_reduce(kind.numpy, reduction)
        or window.has_holes
        or math.prod(operand.dims) * math.prod(instruction.operand(1).dims) == 0
    ):
        return None
    return SelectAndScatterKernel(window, SelectedElements(kind, direction, reduction))


def select_and_scatter_scratch(instruction: HloInstruction, _: Views) -> tuple[ArrayShape, ...]:
    """Return the shape of the result in the accumulator type, if that is wider than the elements."""
    kernel = select_and_scatter_kernel(instruction)
    shape = instruction.array_shape
    accumulate = shape.element_type.accumulator
    if kernel is None or accumulate is shape.element_type:
        return ()
    return (ArrayShape(accumulate, shape.dims),)


LOWERINGS.add(Opcode.REDUCE_WINDOW, Lowering(emit_with(reduce_window_kernel)))
LOWERINGS.add(
    Opcode.SELECT_AND_SCATTER,
    Lowering(emit_with(select_and_scatter_kernel), scratch=select_and_scatter_scratch),
)
