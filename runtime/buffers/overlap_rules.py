"""What the buffer checker asks of one operation: a result may lie on an operand only as a whole, element on element."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.buffers.types import ArrayView, BufferSlice
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.opdef import OPS

#: Beside elementwise operations, those that may write over what they read: each result over the operand of its number.
_IN_PLACE = frozenset(
    {
        Opcode.ALL_REDUCE,
        Opcode.ALL_TO_ALL,
        Opcode.DYNAMIC_UPDATE_SLICE,
        Opcode.FFT,
        Opcode.SCATTER,
    }
)


def wrong_overlap(
    instruction: HloInstruction,
    reads: Sequence[ArrayView],
    scratch: Sequence[BufferSlice],
    results: Sequence[BufferSlice],
) -> str:
    """What is wrong with these places of operands, scratch and results; empty where nothing is."""
    elementwise = OPS[instruction.opcode].elementwise
    in_place = instruction.opcode in _IN_PLACE
    for i, place in enumerate(results):
        if any(place.overlaps(other) for other in results[i + 1 :]):
            return f"writes two results to {place}"
        for k, read in enumerate(reads):
            same_elements = place == read.slice and read.view.is_dense
            may_share = elementwise or (in_place and i == k)
            if place.overlaps(read.slice) and not (may_share and same_elements):
                return f"writes its result to {place} while it reads {read.slice}"
    read_slices = [read.slice for read in reads]
    for i, place in enumerate(scratch):
        if any(place.overlaps(other) for other in (*read_slices, *results, *scratch[i + 1 :])):
            return f"has scratch at {place}, which it uses otherwise"
    return ""
