"""Buffer checker rule: results of a fusion that update a block of an array may overlap that array."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.hlo import HloComputation, HloInstruction, Opcode

_RESHAPES = (Opcode.BITCAST, Opcode.RESHAPE)


def overlaps_but_for_a_block(fusion: HloInstruction) -> frozenset[tuple[int, int]]:
    """Return the pairs (result, operand) that may overlap because the result is the operand with one block updated.

    Only updates that are results may read the operand. The fusion's kernel copies the operand to results that have
    other memory before it writes any block.
    """
    parameters = fusion.to_apply.parameters
    updates = [_update(result) for result in fusion.to_apply.root.elements]
    pairs = set()
    for i, update in enumerate(updates):
        if update is None:
            continue
        source = _behind_reshapes(update.operand(0))
        if source in parameters and _is_only_updated(source, updates):
            pairs.add((i, parameters.index(source)))
    return frozenset(pairs)


def _is_only_updated(x: HloInstruction, updates: Sequence[HloInstruction | None]) -> bool:
    """Return whether only ``updates`` read ``x``, directly or through reshapes, and each as the updated array."""
    for user in x.users:
        if user in updates:
            if user.operand(0) is not x or user.operands.count(x) != 1:
                return False
        elif user.opcode not in _RESHAPES or not _is_only_updated(user, updates):
            return False
    return True


def is_written_block(x: HloInstruction, update: HloInstruction, fused: HloComputation) -> bool:
    """Return whether ``update`` is a result of ``fused`` that reads ``x`` only as the block to write.

    Element n of the block is then written when element n of the other results is written.
    """
    if update.opcode is not Opcode.DYNAMIC_UPDATE_SLICE or update.operands.count(x) != 1:
        return False
    is_result = any(_update(result) is update for result in fused.root.elements)
    return x is update.operand(1) and is_result


def _update(result: HloInstruction) -> HloInstruction | None:
    """Return the dynamic-update-slice that computes ``result``, perhaps through reshapes; None if there is none.

    Neither the update nor the reshapes may have other readers.
    """
    while result.num_users <= 1 and result.opcode in _RESHAPES:
        result = result.operand(0)
    if result.num_users > 1 or result.opcode is not Opcode.DYNAMIC_UPDATE_SLICE:
        return None
    return result


def _behind_reshapes(x: HloInstruction) -> HloInstruction:
    """Return the first operand of the chain of reshapes that ends with ``x``, or ``x`` if it is no reshape."""
    while x.opcode in _RESHAPES:
        x = x.operand(0)
    return x
