"""Exact memory figures of a schedule, from buffer assignment, which takes over ten times as long as the model."""

from __future__ import annotations

import numpy as np

from runtime.buffers.assign import assign_buffers
from runtime.buffers.colocation import GroupKind, colocate
from runtime.buffers.heap.heap import fits
from runtime.buffers.linearize import linearize
from runtime.buffers.program import Program
from runtime.buffers.shared_results import intervals
from runtime.schedule.op_facts import OpFacts
from spmd.errors import UnsupportedError
from spmd.hlo import HloModule
from spmd.shape import HOST_MEMORY


def op_facts(module: HloModule) -> OpFacts | None:
    """Return the op facts of ``module``; None if the runtime cannot lower it, such as a constant without value."""
    try:
        return OpFacts.of(linearize(module))
    except UnsupportedError:
        return None


def device_bytes(module: HloModule) -> int:
    """Return the bytes that a device needs to run ``module`` in its order. A memory limit bounds this number."""
    return program_bytes(linearize(module))


def needs_no_more(program: Program, bound: int) -> bool:
    """Return whether ``device_bytes`` of a linearized program are at most ``bound``.

    Values are packed only until the answer is known.
    """
    groups = [g for g in colocate(program).all_groups() if g.memory_space != HOST_MEMORY]
    fixed = [g for g in groups if g.kind in (GroupKind.PARAMETER, GroupKind.CONSTANT)]
    in_heaps = [g for g in groups if g.kind not in (GroupKind.PARAMETER, GroupKind.CONSTANT)]
    if any(group.memory_space for group in in_heaps):
        return program_bytes(program) <= bound
    # One heap is assumed: heaps that replica groups share leave the sum of heaps about as small (shared_results.py).
    return fits(intervals(in_heaps), bound - sum(group.size for group in fixed))


def least_device_bytes(module: HloModule) -> int:
    """Return a lower bound of ``device_bytes`` over all packings: values are colocated, but get no offsets."""
    return least_bytes(linearize(module))


def program_bytes(program: Program) -> int:
    """Return ``device_bytes`` of a linearized program."""
    return assign_buffers(program).assignment.device_bytes


def least_bytes(program: Program) -> int:
    """Return ``least_device_bytes`` of a linearized program."""
    change = np.zeros(program.end + 2, np.int64)
    always = 0
    for group in colocate(program).all_groups():
        if group.memory_space == HOST_MEMORY:
            continue
        if group.kind in (GroupKind.PARAMETER, GroupKind.CONSTANT):
            always += group.size
            continue
        change[group.start] += group.size
        change[group.end + 1] -= group.size
    return always + int(np.cumsum(change).max())
