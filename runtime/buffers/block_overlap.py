"""Where the buffer checker lets results of a fusion that update a block of an array lie on that array."""

from __future__ import annotations

from spmd.hlo import HloComputation, HloInstruction, Opcode


def overlaps_but_for_a_block(fusion: HloInstruction) -> frozenset[tuple[int, int]]:
    """Pairs (result, operand) where the result is the operand but for a block, which is all that is done with it."""
    root = fusion.to_apply.root
    results = root.operands if root.opcode is Opcode.TUPLE else (root,)
    parameters = fusion.to_apply.parameters
    return frozenset(
        (i, parameters.index(source))
        for i, result in enumerate(results)
        if (source := _updated(result)) in parameters
    )


def is_written_block(x: HloInstruction, update: HloInstruction, fused: HloComputation) -> bool:
    """Whether ``update`` does nothing with ``x`` but write it as a block of a result: element n of the block is written
    when element n of the other results is.
    """
    if update.opcode is not Opcode.DYNAMIC_UPDATE_SLICE or update.operands.count(x) != 1:
        return False
    root = fused.root
    results = root.operands if root.opcode is Opcode.TUPLE else (root,)
    return x is update.operand(1) and any(_update(result) is update for result in results)


def _updated(result: HloInstruction) -> HloInstruction | None:
    """What ``result`` changes a block of, if nothing else reads that or what is seen of it on the way."""
    update = _update(result)
    if update is None:
        return None
    source = update.operand(0)
    return _behind_reshapes(source) if update.operands.count(source) == 1 else None


def _update(result: HloInstruction) -> HloInstruction | None:
    """The update that is all that makes ``result`` and that is seen as nothing else."""
    update = _behind_reshapes(result)
    if update is None or update.opcode is not Opcode.DYNAMIC_UPDATE_SLICE:
        return None
    return update


def _behind_reshapes(x: HloInstruction) -> HloInstruction | None:
    """None where somebody else reads one of them, or what is behind."""
    while x.num_users <= 1 and x.opcode in (Opcode.BITCAST, Opcode.RESHAPE):
        x = x.operand(0)
    return x if x.num_users <= 1 else None
