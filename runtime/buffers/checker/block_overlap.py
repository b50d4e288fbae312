"""Buffer checker rule: results of a fusion that update a block of an array may overlap that array."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.hlo import HloComputation, HloInstruction, Opcode

_RESHAPES = (Opcode.BITCAST, Opcode.RESHAPE)


def overlaps_but_for_a_block(fusion: HloInstruction) -> frozenset[tuple[int, int]]:
    """Return pairs (result, operand) that differ in one block, if nothing but updates that are results reads the
    operand. Results that cannot lie there are copied from it before a block is written.
    """
    root = fusion.to_apply.root
    results = root.operands if root.opcode is Opcode.TUPLE else (root,)
    parameters = fusion.to_apply.parameters
    updates = [_update(result) for result in results]
    pairs = set()
    for i, update in enumerate(updates):
        if update is None:
            continue
        source = _behind_reshapes(update.operand(0))
        if source in parameters and _is_only_updated(source, updates):
            pairs.add((i, parameters.index(source)))
    return frozenset(pairs)


def _is_only_updated(x: HloInstruction, updates: Sequence[HloInstruction | None]) -> bool:
    """Return whether ``updates`` of ``x``, or of reshapes of it, are all that reads it."""
    for user in x.users:
        if user in updates:
            if user.operand(0) is not x or user.operands.count(x) != 1:
                return False
        elif user.opcode not in _RESHAPES or not _is_only_updated(user, updates):
            return False
    return True


def is_written_block(x: HloInstruction, update: HloInstruction, fused: HloComputation) -> bool:
    """Return whether ``update`` only writes ``x`` as a block of a result. Element n of the block is then written when
    element n of the other results is.
    """
    if update.opcode is not Opcode.DYNAMIC_UPDATE_SLICE or update.operands.count(x) != 1:
        return False
    root = fused.root
    results = root.operands if root.opcode is Opcode.TUPLE else (root,)
    return x is update.operand(1) and any(_update(result) is update for result in results)


def _update(result: HloInstruction) -> HloInstruction | None:
    """Return the update that alone makes ``result``, if no other instruction reads it."""
    while result.num_users <= 1 and result.opcode in _RESHAPES:
        result = result.operand(0)
    if result.num_users > 1 or result.opcode is not Opcode.DYNAMIC_UPDATE_SLICE:
        return None
    return result


def _behind_reshapes(x: HloInstruction) -> HloInstruction:
    while x.opcode in _RESHAPES:
        x = x.operand(0)
    return x
