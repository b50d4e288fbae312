"""Buffer checker rule: results of a fusion that update a block of an array may overlap that array."""

from __future__ import annotations

from spmd.hlo import HloComputation, HloInstruction, Opcode


def overlaps_but_for_a_block(fusion: HloInstruction) -> frozenset[tuple[int, int]]:
    """Return pairs (result, operand) that differ in one block, if nothing but its update reads the operand."""
    root = fusion.to_apply.root
    results = root.operands if root.opcode is Opcode.TUPLE else (root,)
    parameters = fusion.to_apply.parameters
    return frozenset(
        (i, parameters.index(source))
        for i, result in enumerate(results)
        if (source := _updated(result)) in parameters
    )


def is_written_block(x: HloInstruction, update: HloInstruction, fused: HloComputation) -> bool:
    """Return whether ``update`` only writes ``x`` as a block of a result. Element n of the block is then written when
    element n of the other results is.
    """
    if update.opcode is not Opcode.DYNAMIC_UPDATE_SLICE or update.operands.count(x) != 1:
        return False
    root = fused.root
    results = root.operands if root.opcode is Opcode.TUPLE else (root,)
    return x is update.operand(1) and any(_update(result) is update for result in results)


def _updated(result: HloInstruction) -> HloInstruction | None:
    """Return the array of which ``result`` changes a block, if no other instruction reads it or a reshape of it."""
    update = _update(result)
    if update is None:
        return None
    source = update.operand(0)
    return _behind_reshapes(source) if update.operands.count(source) == 1 else None


def _update(result: HloInstruction) -> HloInstruction | None:
    """Return the update that alone makes ``result``, if no other instruction reads it."""
    update = _behind_reshapes(result)
    if update is None or update.opcode is not Opcode.DYNAMIC_UPDATE_SLICE:
        return None
    return update


def _behind_reshapes(x: HloInstruction) -> HloInstruction | None:
    """Skip reshapes of ``x``. Returns None if one of them, or the array found, has several readers."""
    while x.num_users <= 1 and x.opcode in (Opcode.BITCAST, Opcode.RESHAPE):
        x = x.operand(0)
    return x if x.num_users <= 1 else None
