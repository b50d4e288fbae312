"""Exact memory figures of a schedule, from buffer assignment, which takes over ten times as long as the model."""

from __future__ import annotations

from runtime.buffers.assign import assign_buffers
from runtime.buffers.colocation import Group, GroupKind, colocate
from runtime.buffers.heap.arena import lower_bound
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
    fixed, in_heaps = _on_device(program)
    if any(group.memory_space for group in in_heaps):
        return program_bytes(program) <= bound
    # One heap is assumed: heaps that replica groups share leave the sum of heaps about as small (shared_results.py).
    return fits(intervals(in_heaps), bound - fixed)


def least_device_bytes(module: HloModule) -> int:
    """Return a lower bound of ``device_bytes`` over all packings: values are colocated, but get no offsets."""
    return least_bytes(linearize(module))


def program_bytes(program: Program) -> int:
    """Return ``device_bytes`` of a linearized program."""
    return assign_buffers(program).assignment.device_bytes


def least_bytes(program: Program) -> int:
    """Return ``least_device_bytes`` of a linearized program."""
    fixed, in_heaps = _on_device(program)
    return fixed + lower_bound(intervals(in_heaps))


def _on_device(program: Program) -> tuple[int, list[Group]]:
    """Return the bytes of parameters and constants in the device's memory, and the groups in its heaps."""
    groups = [g for g in colocate(program).all_groups() if g.memory_space != HOST_MEMORY]
    given = (GroupKind.PARAMETER, GroupKind.CONSTANT)
    fixed = sum(group.size for group in groups if group.kind in given)
    return fixed, [group for group in groups if group.kind not in given]
