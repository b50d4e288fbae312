"""custom-call: an operation that the compiler knows only by its target's name; HLO does not define its shape
or cost.
"""

from __future__ import annotations

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CustomCallAttrs
from spmd.ops.checks import check_aliases, same_type
from spmd.ops.leaf import infer_free
from spmd.ops.opdef import SizeOf, define, not_counted, operands_and_result

#: XLA's target for uninitialized memory, which is written before it is read.
ALLOCATE_BUFFER = "AllocateBuffer"

#: Target of a computation on arrays with run-time sizes. Its results have their bounds as sizes and are padded with
#: zeros.
DYNAMIC_REGION = "DynamicRegion"

#: XLA's targets at the boundaries of padded programs: an array cut to its sizes; an array and its sizes.
SLICE_TO_DYNAMIC, PAD_TO_STATIC = "SliceToDynamic", "PadToStatic"


#: Target of a call whose per-device computation a Python function creates (jax.custom_partitioning).
CUSTOM_PARTITIONING = "CustomSPMDPartitioning"

#: Targets of calls that return their operand with a sharding.
SHARDING_ANNOTATIONS = ("Sharding", "xla.sdy.FuncResultSharding")

#: Targets of calls that only the partitioner understands.
PARTITIONER_CALLS = frozenset(
    {
        *SHARDING_ANNOTATIONS,
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "_SPMDInternalOp_MultiPad",
        "_SPMDInternalOp_MultiRotate",
        "_SPMDInternalOp_MultiSlice",
        "_SPMDInternalOp_RotateRight",
        "_SPMDInternalOp_Wrap",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
    }
)


def custom_call_target(instruction: HloInstruction) -> str:
    """Return the target of a custom call, "" for any other op."""
    attrs = instruction.attrs
    return attrs.target if isinstance(attrs, CustomCallAttrs) else ""


def cuts_to_sizes(instruction: HloInstruction) -> bool:
    return custom_call_target(instruction) == SLICE_TO_DYNAMIC


def is_dynamic_region(instruction: HloInstruction) -> bool:
    return custom_call_target(instruction) == DYNAMIC_REGION


def is_sharding_annotation(instruction: HloInstruction) -> bool:
    return custom_call_target(instruction) in SHARDING_ANNOTATIONS


def partitioner_number(call: HloInstruction) -> int | None:
    """Return the number of the partition function that a CUSTOM_PARTITIONING call names; None if it has none."""
    module = call.parent.module if call.parent is not None else None
    named = call.annotations.backend_config.strip('"')
    if module is None or not call.called_computations or not named.isdecimal():
        return None
    return int(named) if int(named) < len(module.host_functions.partitioners) else None


def is_uninitialized(instruction: HloInstruction) -> bool:
    """Return whether this is an array that has not been written yet."""
    return custom_call_target(instruction) == ALLOCATE_BUFFER


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


def bytes_accessed(instruction: HloInstruction, size_of: SizeOf) -> float:
    return 0.0 if is_uninitialized(instruction) else operands_and_result(instruction, size_of)


define(
    Opcode.CUSTOM_CALL,
    infer_free,
    None,
    verify_custom_call,
    bytes_accessed=bytes_accessed,
    applications=not_counted,
    side_effect=has_side_effect,
)
