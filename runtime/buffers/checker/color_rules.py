"""Buffer checker rules for memory colours: the right memory space, and safe writes to memory that groups share.

Memory that a group shares has readers on other devices. They run the same schedule, each at its own pace: while this
device is at one position, a peer may be at any other between the last collective that both have started and the next.
So a write at a position that is no collective may destroy what a peer still reads, or present a value that it does not
expect. At a collective among exactly the group no member is behind, and if the collective gives all members the same
result, each finds the expected value. All other values that a device keeps, between trips, branches or steps, are
private.
"""

from __future__ import annotations

from collectives.communicator.kinds.op import CollectiveOp
from runtime.buffers.checker.symbols import Meaning
from runtime.buffers.types import AllocationKind, BufferAllocation


def wrong_space(allocation: BufferAllocation, meaning: Meaning) -> str:
    """Return why a value must not lie in this allocation, or an empty string if it may."""
    found = allocation.color.memory_space
    if found == meaning.memory_space:
        return ""
    return f"should be in memory space {meaning.memory_space}, allocation {allocation.index} is in {found}"


def wrong_write(allocation: BufferAllocation, op: CollectiveOp | None) -> str:
    """Return why a collective, or (None) another op, must not write to this allocation; an empty string if it may."""
    if allocation.kind is AllocationKind.CONSTANT:
        return "a constant"
    if not allocation.color.groups:
        return ""
    if op is None:
        return "memory that others read"
    if not op.collective.same_results:
        return "memory in which all members must find the same"
    if {frozenset(group) for group in op.groups} != set(map(frozenset, allocation.color.groups)):
        return "memory of other groups than it joins"
    return ""


def wrong_state(allocation: BufferAllocation) -> str:
    """Return why loop state, branch results or outputs must not lie here; an empty string if they may."""
    return "in memory that others write" if allocation.color.groups else ""
