"""What the buffer checker asks of memory by its colour: the right space, and care with what groups hold together.

Memory of a group has readers on other devices. They go through the same schedule, each at its own pace: while this
device is at one position, a peer may be at any other between the last collective that both have started and the next.
So at any position but a collective's, a write there may destroy what a peer has yet to read, or bring what a peer has
not asked for. At a collective among exactly the group nobody is behind, and if it is one that gives all the same, each
finds what it asked for. Everything else that a device keeps for itself, between trips, branches or steps, is private.
"""

from __future__ import annotations

from runtime.buffers.symbols import Meaning
from runtime.buffers.types import AllocationKind, BufferAllocation
from runtime.program.thunks.collective_plans import (
    AllGatherPlan,
    AllReducePlan,
    CollectiveBroadcastPlan,
    CollectivePlan,
)

_SAME_FOR_ALL = (AllGatherPlan, AllReducePlan, CollectiveBroadcastPlan)


def wrong_space(allocation: BufferAllocation, meaning: Meaning) -> str:
    """Why a value may not be looked for in this allocation; empty where it may."""
    found = allocation.color.memory_space
    if found == meaning.memory_space:
        return ""
    return f"should be in memory space {meaning.memory_space}, allocation {allocation.index} is in {found}"


def wrong_write(allocation: BufferAllocation, plan: CollectivePlan | None) -> str:
    """Why a collective, or (None) something else, may not write to this allocation; empty where it may."""
    if allocation.kind is AllocationKind.CONSTANT:
        return "a constant"
    if not allocation.color.groups:
        return ""
    if plan is None:
        return "memory that others read"
    if not isinstance(plan, _SAME_FOR_ALL):
        return "memory in which all members must find the same"
    if {frozenset(group) for group in plan.groups} != set(map(frozenset, allocation.color.groups)):
        return "memory of other groups than it joins"
    return ""


def wrong_state(allocation: BufferAllocation) -> str:
    """Why nothing may lie in this allocation that outlives a region or a step; empty where it may."""
    return "in memory that others write" if allocation.color.groups else ""
