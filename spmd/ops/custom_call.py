"""custom-call: an operation the compiler knows by its target's name only; its shape and cost stand outside HLO."""

from __future__ import annotations

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CustomCallAttrs
from spmd.ops.checks import check_aliases, same_type
from spmd.ops.leaf import infer_free
from spmd.ops.opdef import OpDef, define, not_counted, operands_and_result

#: Target (XLA's) of an array that holds whatever lay in its memory: nobody reads it before it is written.
ALLOCATE_BUFFER = "AllocateBuffer"

#: Target of a computation whose arrays have run-time sizes; its results come at their bounds, padded with zeros.
DYNAMIC_REGION = "DynamicRegion"

#: Targets (XLA's) at the borders of programs that it has padded: an array cut to sizes, an array and its sizes.
SLICE_TO_DYNAMIC, PAD_TO_STATIC = "SliceToDynamic", "PadToStatic"


def cuts_to_sizes(instruction: HloInstruction) -> bool:
    attrs = instruction.attrs
    return isinstance(attrs, CustomCallAttrs) and attrs.target == SLICE_TO_DYNAMIC


def is_dynamic_region(instruction: HloInstruction) -> bool:
    attrs = instruction.attrs
    return isinstance(attrs, CustomCallAttrs) and attrs.target == DYNAMIC_REGION


def is_unwritten(instruction: HloInstruction) -> bool:
    """An array that nothing has been written to yet."""
    attrs = instruction.attrs
    return isinstance(attrs, CustomCallAttrs) and attrs.target == ALLOCATE_BUFFER


def verify_custom_call(instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(CustomCallAttrs)
    check_aliases(instruction, attrs.output_to_operand_aliasing)
    constraints = attrs.operand_layout_constraints
    if constraints is None:
        return
    if len(constraints) != instruction.num_operands:
        raise ShapeError(
            f"{len(constraints)} operand_layout_constraints for {instruction.num_operands} operands"
        )
    for operand, constraint in zip(instruction.operands, constraints, strict=True):
        if not same_type(operand.shape, constraint):
            raise ShapeError(
                f"operand_layout_constraints say {constraint}, the operand is {operand.shape}"
            )


def has_side_effect(instruction: HloInstruction) -> bool:
    return instruction.attrs_as(CustomCallAttrs).has_side_effect


def bytes_accessed(instruction: HloInstruction) -> float:
    return 0.0 if is_unwritten(instruction) else operands_and_result(instruction)


define(
    OpDef(
        Opcode.CUSTOM_CALL,
        infer_free,
        None,
        verify_custom_call,
        bytes_accessed=bytes_accessed,
        applications=not_counted,
        side_effect=has_side_effect,
    )
)
