"""Bytes that one kernel of a module must read and write: each operand as far as it is needed, once, and its results."""

from __future__ import annotations

from spmd.analysis.cost import op_cost
from spmd.hlo import HloInstruction, Opcode

_PARTS = frozenset({Opcode.SLICE, Opcode.DYNAMIC_SLICE, Opcode.GATHER})
_SAME_BYTES = frozenset({Opcode.BITCAST, Opcode.RESHAPE, Opcode.COPY, Opcode.TRANSPOSE})


def kernel_bytes(x: HloInstruction) -> float:
    """Read and written by one execution."""
    if x.opcode is not Opcode.FUSION:
        return op_cost(x).bytes_accessed
    (fused,) = x.called_computations
    read = sum(_needed(parameter) for parameter in fused.parameters)
    return read + sum(_written(root) for root in _results(fused.root))


def _results(root: HloInstruction) -> list[HloInstruction]:
    return list(root.operands) if root.opcode is Opcode.TUPLE else [root]


def _needed(x: HloInstruction) -> float:
    """Bytes of ``x``, inside a fusion, that its readers take; all of it where one of them may."""
    whole = float(x.shape.byte_size)
    taken = 0.0
    for user in x.users:
        if user.opcode in _PARTS and user.operand(0) is x:
            taken += user.shape.byte_size
        elif user.opcode in _SAME_BYTES:
            taken += _needed(user)
        elif user.opcode is Opcode.DYNAMIC_UPDATE_SLICE and user.operand(0) is x:
            taken += 0.0 if _is_written_in_place(user) else whole
        else:
            return whole
    if not x.users:
        return whole  # goes out as it is
    return min(whole, taken)


def _is_written_in_place(update: HloInstruction) -> bool:
    """Return whether the update is a result of its fusion, or a view of one."""
    if not update.users:
        return True
    return all(
        user.opcode is Opcode.TUPLE or (user.opcode in _SAME_BYTES and _is_written_in_place(user))
        for user in update.users
    )


def _written(root: HloInstruction) -> float:
    while root.opcode in _SAME_BYTES:
        root = root.operand(0)
    if root.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
        return root.operand(1).shape.byte_size
    return root.shape.byte_size
