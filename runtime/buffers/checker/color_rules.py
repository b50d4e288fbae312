"""Buffer checker rules for memory colours: the right memory space, and safe writes to memory that groups share.

Memory that a group shares has readers on other devices, which run the same schedule, each at its own pace: while this
device is at one position, a peer may be at any position between the last collective that both have started and the
next. A write by another op than a collective may therefore destroy a value that a peer still reads, or store a value
that the peer does not expect. At a collective among exactly the group, no member is behind; and if the collective gives
all members the same result, each finds the value that it expects. All other values that a device keeps between trips,
branches or steps must be private.
"""

from __future__ import annotations

from collectives.communicator.kinds.op import CollectiveOp
from runtime.buffers.checker.symbols import Meaning
from runtime.buffers.types import AllocationKind, BufferAllocation


def wrong_space(allocation: BufferAllocation, meaning: Meaning) -> str:
    """Return why a value with ``meaning`` must not be in ``allocation``, or an empty string if it may."""
    found = allocation.color.memory_space
    if found == meaning.memory_space:
        return ""
    return f"should be in memory space {meaning.memory_space}, allocation {allocation.index} is in {found}"


def wrong_write(allocation: BufferAllocation, op: CollectiveOp | None) -> str:
    """Return why an op must not write to ``allocation``, or an empty string if it may.

    op: the collective that writes, or None for an op that is no collective.
    """
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
    """Return why loop state, branch results and outputs must not be in ``allocation``, or "" if they may."""
    return "in memory that others write" if allocation.color.groups else ""
