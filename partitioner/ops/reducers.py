"""Classification of reducers: a known reduction, a choice among the arguments, or neither."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.device import ReductionKind
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ParameterAttrs
from spmd.ops.reduction import operation_kind, through_annotations

_CHOOSERS = (Opcode.SELECT, Opcode.MAXIMUM, Opcode.MINIMUM)


def reduction_of(computation: HloComputation) -> ReductionKind | None:
    """Return the kind of a reducer over 2n scalars (n accumulators, then n elements); None if it has no single kind.

    ``ROOT r = add(p0, p1)`` is SUM; so is ``ROOT s = custom-call(r), custom_call_target="Sharding"`` over it, and a sum
    taken in a wider type. With n > 1 every root element must combine its own pair by the same kind.
    """
    elements = root_elements(computation)
    count = len(elements)
    if computation.num_parameters != 2 * count:
        return None
    kinds = [_pair_kind(element, i, i + count) for i, element in enumerate(elements)]
    return kinds[0] if all(kind is kinds[0] for kind in kinds) else None


def chooses_an_argument(computation: HloComputation) -> bool:
    """Return whether every result is one of the arguments (argmax, argmin), so that repeating an argument changes
    nothing.

    Comparisons inside may be arbitrary; values reach the root only through select, maximum and minimum.
    """
    return all(_is_choice(element) for element in root_elements(computation))


def root_elements(computation: HloComputation) -> Sequence[HloInstruction]:
    """Return the root's elements, seen through annotations."""
    root = through_annotations(computation.root)
    return (
        [through_annotations(x) for x in root.operands] if root.opcode is Opcode.TUPLE else [root]
    )


def _pair_kind(root: HloInstruction, left: int, right: int) -> ReductionKind | None:
    """Return the kind if ``root`` combines parameters ``left`` and ``right``, in either order, possibly in a wider
    type.
    """
    if root.opcode is Opcode.CONVERT:
        root = through_annotations(root.operand(0))
    kind = operation_kind(root)
    if kind is None or {_parameter(operand) for operand in root.operands} != {left, right}:
        return None
    return kind


def _parameter(instruction: HloInstruction) -> int | None:
    instruction = through_annotations(instruction)
    if instruction.opcode is Opcode.CONVERT:
        instruction = through_annotations(instruction.operand(0))
    if instruction.opcode is not Opcode.PARAMETER:
        return None
    return instruction.attrs_as(ParameterAttrs).number


def _is_choice(instruction: HloInstruction) -> bool:
    instruction = through_annotations(instruction)
    if instruction.opcode is Opcode.PARAMETER:
        return True
    if instruction.opcode not in _CHOOSERS:
        return False
    chosen = (
        instruction.operands[1:] if instruction.opcode is Opcode.SELECT else instruction.operands
    )
    return all(_is_choice(operand) for operand in chosen)
