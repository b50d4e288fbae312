"""Insertion of one more sharding annotation into a module, as a remedy recommends."""

from __future__ import annotations

from partitioner.annotations.reader import CONSTRAINT_TARGETS, without_shardings
from spmd.errors import ShardingError
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.hlo.clone import clone_module
from spmd.ops.attrs import CustomCallAttrs
from spmd.ops.custom_call import custom_call_target
from spmd.sharding import HloSharding


def find_instruction(module: HloModule, name: str) -> HloInstruction | None:
    for instruction in module.all_instructions():
        if instruction.name == name:
            return instruction
    return None


def annotated(module: HloModule, name: str, sharding: HloSharding) -> HloModule:
    """Return a copy of ``module`` in which the array ``name`` is bound to ``sharding``.

    The annotation of a parameter or constraint is replaced; any other value gets a ``Sharding`` call after it. Raises
    ShardingError if no instruction has this name.
    """
    copy = clone_module(module)
    instruction = find_instruction(copy, name)
    if instruction is None or instruction.parent is None:
        raise ShardingError(f"no instruction named {name} in {module.name}")
    if is_annotation(instruction):
        instruction.sharding = sharding
        instruction.annotations = without_shardings(instruction.annotations)
        return copy
    pinned = instruction.parent.create(
        Opcode.CUSTOM_CALL, instruction.shape, attrs=CustomCallAttrs("Sharding"), sharding=sharding
    )
    instruction.replace_all_uses_with(pinned)
    pinned.set_operands([instruction])
    return copy


def is_annotation(instruction: HloInstruction) -> bool:
    """Return whether the instruction states a sharding itself, so that a new one replaces it."""
    return (
        instruction.opcode is Opcode.PARAMETER
        or custom_call_target(instruction) in CONSTRAINT_TARGETS
    )
