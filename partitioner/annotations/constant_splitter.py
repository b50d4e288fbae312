"""Copies of constant expressions: every user gets its own, so that no sharding passes between unrelated users.

    i = s32[16] iota()              i  = s32[16] iota()     i' = s32[16] iota()
    a = f(i, x)             =>      a  = f(i, x)
    b = g(i, y)                     b  = g(i', y)

Two users of one counter, mask or splat often have nothing in common except that CSE merged it. Without the copy, the
sharding of x would reach y through i. The partitioned program merges copies that end in one sharding, and no copy costs
communication. Scalars carry no sharding and stay shared, so a broadcast of any scalar counts as constant.
"""

from __future__ import annotations

from collections.abc import Hashable

from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.ops import definition
from spmd.passes.rewrite import is_annotated
from spmd.shape import ArrayShape

_LEAVES = frozenset({Opcode.CONSTANT, Opcode.IOTA})
_MOVES = frozenset({Opcode.BROADCAST, Opcode.RESHAPE, Opcode.TRANSPOSE, Opcode.SLICE})


def split_constants(module: HloModule) -> None:
    for computation in module.computations_post_order():
        _split_in(computation)


def _split_in(computation: HloComputation) -> None:
    """Give each use its own copy, users before operands. Stop when the computation has doubled in size."""
    order = computation.post_order()
    free: dict[HloInstruction, None] = {}
    for instruction in order:
        if _is_constant(instruction, free):
            free[instruction] = None
    left = len(order)
    for instruction in reversed(order):
        if instruction not in free or instruction.dims == ():
            continue
        uses = _uses(instruction)
        # If it is the root, the root use keeps the original.
        for user, positions in uses if instruction.is_root else uses[1:]:
            if not left:
                return
            left -= 1
            copy = computation.add(instruction.clone(instruction.shape, instruction.operands))
            for position in positions:
                user.replace_operand(position, copy)


def merge_constants(module: HloModule) -> None:
    """Merge equal constant expressions."""
    for computation in module.computations_post_order():
        free: dict[HloInstruction, None] = {}
        first: dict[Hashable, HloInstruction] = {}
        for instruction in computation.post_order():
            if not _is_constant(instruction, free):
                continue
            operands = tuple(map(id, instruction.operands))
            key = (instruction.opcode, instruction.shape, instruction.attrs, operands)
            equivalent = first.setdefault(key, instruction)
            if equivalent is instruction:
                free[instruction] = None
            else:
                computation.replace(instruction, equivalent)


def _is_constant(instruction: HloInstruction, free: dict[HloInstruction, None]) -> bool:
    if not isinstance(instruction.shape, ArrayShape) or is_annotated(instruction):
        return False
    if instruction.opcode in _LEAVES:
        return True
    if instruction.opcode not in _MOVES and not definition(instruction.opcode).elementwise:
        return False
    if instruction.called_computations or not instruction.operands:
        return False
    return all(
        operand in free or (isinstance(operand.shape, ArrayShape) and operand.dims == ())
        for operand in instruction.operands
    )


def _uses(instruction: HloInstruction) -> list[tuple[HloInstruction, tuple[int, ...]]]:
    """Return (user, operand positions) of each use. An op is one use; each element of a tuple is a use of its own."""
    uses: list[tuple[HloInstruction, tuple[int, ...]]] = []
    for user in instruction.users:
        positions = tuple(i for i, operand in enumerate(user.operands) if operand is instruction)
        if user.opcode is Opcode.TUPLE:
            uses.extend((user, (position,)) for position in positions)
        else:
            uses.append((user, positions))
    return uses
