"""Colocation: values that share memory, because the program requires it (loop state, aliases) or allows it (in place).

Two values may share memory if they are in the same memory space, and the first is dead when the second is written, or
the operation that writes the second reads the first and may overwrite it. If two values must be in the same slice but
cannot share memory, a copy is added to ``copies``. The order matters: sharing that saves a copy comes first (aliased
outputs, loops from the outermost inwards, branches), then sharing that saves memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import Enum

from collectives.communicator.group import Group as DeviceGroup
from runtime.buffers.program import (
    Program,
    ScheduledConditional,
    ScheduledOp,
    ScheduledWhile,
    Value,
    ValueView,
    all_ops,
)
from runtime.lowering import LOWERINGS
from spmd.lazy_dataclass import dataclass


class GroupKind(Enum):
    """Kind of the values in a group. The memory of an OUTPUT is reserved from its first write to the end of a step."""

    PARAMETER = "parameter"
    OUTPUT = "output"
    CONSTANT = "constant"
    TEMPORARY = "temporary"


@dataclass(eq=False)
class Group:
    """Values of one size and memory space that share one slice.

    start, end: first and last position at which the slice is in use. Some of the values, but not the first, may occupy
    only a part of the slice (``Colocation.parts``).
    """

    values: list[Value]
    kind: GroupKind
    #: Number of the parameter leaf, output leaf or constant.
    number: int
    size: int
    memory_space: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy of ``source`` to ``target``, which is dense, at ``position``.

    op: loop or conditional that needs the copy. If it is None, ``target`` is the number of an output leaf.
    """

    source: ValueView
    target: Value | int
    position: int
    op: ScheduledOp | None


@dataclass
class Colocation:
    """Group of each value of a program, and the copies that are needed."""

    program: Program
    groups: dict[Value, Group] = field(default_factory=dict)
    copies: list[Copy] = field(default_factory=list)
    #: Group whose memory holds output leaf n.
    outputs: dict[int, Group] = field(default_factory=dict)
    #: Values that occupy one part of their group's slice, with the groups of devices (BufferSlice.parts).
    parts: dict[Value, tuple[DeviceGroup, ...]] = field(default_factory=dict)

    def merge(self, into: Group, other: Group) -> None:
        """Move the values of ``other`` to ``into``, which is then in use during both live ranges."""
        into.values.extend(other.values)
        into.start = min(into.start, other.start)
        into.end = max(into.end, other.end)
        for value in other.values:
            self.groups[value] = into

    def is_alone(self, value: Value) -> bool:
        """Return whether ``value`` is a temporary that shares its memory with no other value."""
        group = self.groups[value]
        return group.kind is GroupKind.TEMPORARY and len(group.values) == 1

    def in_heaps(self) -> list[Group]:
        """Return the groups that are in heaps: temporaries, and outputs that are in no parameter's memory."""
        kinds = (GroupKind.TEMPORARY, GroupKind.OUTPUT)
        return [group for group in self.all_groups() if group.kind in kinds]

    def all_groups(self) -> list[Group]:
        """Return all groups, each once, in the order of their first values; groups of copied outputs come last."""
        unique: dict[int, Group] = {}
        for value in self.program.values:
            group = self.groups[value]
            unique.setdefault(id(group), group)
        for group in self.outputs.values():
            unique.setdefault(id(group), group)
        return list(unique.values())


def colocate(program: Program) -> Colocation:
    """Return the groups of values of ``program`` that share memory, and the copies that are needed."""
    result = Colocation(program)
    earliest_ends = _earliest_ends(program)
    constants = 0
    for value in program.values:
        kind, number = GroupKind.TEMPORARY, 0
        if value.parameter is not None:
            kind, number = GroupKind.PARAMETER, value.parameter
        elif value.constant is not None:
            kind, number = GroupKind.CONSTANT, constants
            constants += 1
        end = max(value.last_read, earliest_ends.get(value, 0))
        result.groups[value] = Group(
            [value], kind, number, value.size, value.memory_space, value.start, end
        )
    writers = _writers(program)
    _colocate_outputs(result, writers)
    for op in all_ops(program.entry):
        if isinstance(op, ScheduledWhile):
            _colocate_loop_state(result, op, writers)
        elif isinstance(op, ScheduledConditional):
            _colocate_branch_results(result, op)
    for op in all_ops(program.entry):
        if isinstance(op, ScheduledWhile):
            _colocate_inits(result, op, writers)
        else:
            _share_in_place(result, op)
    return result


def _earliest_ends(program: Program) -> dict[Value, int]:
    """Return the first possible end of the live ranges of loop state and branch results.

    They are in use until the end of the loop or of the last branch, since regions write them at their ends.
    """
    ends: dict[Value, int] = {}
    for op in all_ops(program.entry):
        if isinstance(op, ScheduledWhile):
            ends.update((value, op.end) for value in op.results)
        elif isinstance(op, ScheduledConditional):
            last = max(branch.region.end for branch in op.branches)
            ends.update((value, last) for value in op.results)
    return ends


def _writers(program: Program) -> dict[Value, tuple[ScheduledOp, int]]:
    """Return, for each value that an op writes, the op and the number of the result leaf."""
    return {value: (op, i) for op in all_ops(program.entry) for i, value in enumerate(op.results)}


def writes_over(op: ScheduledOp, result: int) -> list[int]:
    """Return the numbers of the operand leaves of ``op`` that result leaf ``result`` may overwrite."""
    if isinstance(op, ScheduledWhile):
        return [result]
    lowering = LOWERINGS.get(op.instruction.opcode)
    if lowering is None or type(op) is not ScheduledOp:
        return []
    return [operand for r, operand in lowering.in_place(op.instruction) if r == result]


def _is_read_in_place(value: Value, op: ScheduledOp, result: int, over: Sequence[int]) -> bool:
    """Return whether ``op`` reads ``value`` once, entirely, as an operand in ``over``, and ``result`` fits there."""
    here = [read for read in value.reads if read.op is op and read.position == op.position]
    if len(here) != 1 or not here[0].view.is_entire:
        return False
    if not _fits(value, op.results[result]):
        return False
    return here[0].operand in over


def _fits(value: Value, other: Value) -> bool:
    """Return whether the values have the same size and memory space."""
    return value.size == other.size and value.memory_space == other.memory_space


def _may_follow(value: Value, last_read: int, op: ScheduledOp, result: int) -> bool:
    """Return whether ``result`` of ``op`` may be written into the memory of ``value``, last read at ``last_read``."""
    if last_read < op.position:
        return True
    return last_read == op.position and _is_read_in_place(
        value, op, result, writes_over(op, result)
    )


def _colocate_outputs(
    colocation: Colocation, writers: dict[Value, tuple[ScheduledOp, int]]
) -> None:
    """Assign each output a group: that of the aliased parameter, else one of its own.

    If the output's value cannot be written there directly, a copy at the end of the program is added.
    """
    program = colocation.program
    for output in program.outputs:
        value, view = output.view.value, output.view
        if output.aliased is not None:
            parameter = program.parameters[output.aliased]
            target = colocation.groups[parameter]
            target.end = program.end
            colocation.outputs[output.number] = target
            if value is parameter and view.is_entire:
                continue
            if _can_write_directly(colocation, view, program.entry) and _follows(
                parameter, parameter.last_read, value, writers
            ):
                colocation.merge(target, colocation.groups[value])
                continue
        elif _can_write_directly(colocation, view, program.entry):
            group = colocation.groups[value]
            group.kind, group.number, group.end = GroupKind.OUTPUT, output.number, program.end
            colocation.outputs[output.number] = group
            continue
        else:
            target = Group(
                [],
                GroupKind.OUTPUT,
                output.number,
                view.view.byte_size,
                value.memory_space,
                program.end,
                program.end,
            )
            colocation.outputs[output.number] = target
        copy = Copy(view, output.number, program.end, None)
        colocation.copies.append(copy)


def _can_write_directly(colocation: Colocation, view: ValueView, region: object) -> bool:
    """Return whether the value is viewed entirely, shares no memory, and is written in ``region`` itself."""
    return view.is_entire and view.value.region is region and colocation.is_alone(view.value)


def _follows(
    value: Value, last_read: int, other: Value, writers: dict[Value, tuple[ScheduledOp, int]]
) -> bool:
    """Return whether an op may write ``other`` to the memory of ``value``, whose last read is at ``last_read``."""
    if other not in writers:
        return False
    op, result = writers[other]
    return _may_follow(value, last_read, op, result)


def _colocate_loop_state(
    colocation: Colocation, loop: ScheduledWhile, writers: dict[Value, tuple[ScheduledOp, int]]
) -> None:
    """Let the loop's body write the new value of each leaf to the leaf's memory if the old value is dead by then.

    Otherwise a copy at the end of the body is added.
    """
    for carried in loop.carried:
        value = carried.root.value
        if _can_write_directly(colocation, carried.root, loop.body) and _fits(value, carried.value):
            op, result = writers[value]
            inside = [
                read.until_within(loop.body, loop.condition)
                for read in carried.value.reads
                if read.region.is_inside(loop.body) or read.region.is_inside(loop.condition)
            ]
            if _may_follow(carried.value, max(inside, default=-1), op, result):
                colocation.merge(colocation.groups[carried.value], colocation.groups[value])
                continue
        copy = Copy(carried.root, carried.value, loop.body.end, loop)
        colocation.copies.append(copy)


def _colocate_branch_results(colocation: Colocation, op: ScheduledConditional) -> None:
    """Let branches write their results to the memory of the conditional's results; otherwise add copies."""
    for branch in op.branches:
        for view, result in zip(branch.roots, op.results, strict=True):
            if _can_write_directly(colocation, view, branch.region) and _fits(view.value, result):
                colocation.merge(colocation.groups[result], colocation.groups[view.value])
            else:
                colocation.copies.append(Copy(view, result, branch.region.end, op))


def _colocate_inits(
    colocation: Colocation, loop: ScheduledWhile, writers: dict[Value, tuple[ScheduledOp, int]]
) -> None:
    """Give the loop's state the memory of its initial values if these have no later use; otherwise add copies."""
    for i, carried in enumerate(loop.carried):
        source = colocation.groups[carried.init.value]
        target = colocation.groups[carried.value]
        if source is target:
            continue
        may_share = _can_share(source, loop, i, [i]) and _is_free_before(
            target, loop, source, writers
        )
        if may_share and target.kind is GroupKind.TEMPORARY:
            colocation.merge(source, target)
        elif may_share and target.kind is GroupKind.OUTPUT:
            colocation.merge(target, source)
        else:
            colocation.copies.append(Copy(carried.init, carried.value, loop.position, loop))


def _is_free_before(
    target: Group,
    loop: ScheduledWhile,
    source: Group,
    writers: dict[Value, tuple[ScheduledOp, int]],
) -> bool:
    """Return whether the values before the loop in ``target``, the group of the loop's state, are dead in time.

    They must be dead when ``source``, the group of the initial value, begins. There are such values if the loop's
    result is the new state of an enclosing loop, whose old state they are, or a result of a branch.
    """
    before = [value for value in target.values if value.start < loop.position]
    if not before:
        return True
    around = loop.region.with_parents()
    first = min(source.values, key=lambda value: value.start)
    for value in before:
        reads = [read for read in value.reads if read.position <= loop.position]
        last = max((value.start, *(read.until_within(*around) for read in reads)))
        if last >= first.start and not _follows(value, last, first, writers):
            return False
    return True


def _can_share(source: Group, op: ScheduledOp, result: int, over: Sequence[int]) -> bool:
    """Return whether result leaf ``result`` of ``op`` may be written to the memory of ``source``.

    over: operand leaves that the result may overwrite. ``op`` must read one of them in ``source``, as its last read.
    """
    if source.kind in (GroupKind.CONSTANT, GroupKind.PARAMETER):
        return False
    if source.end != op.position or not _fits(source.values[0], op.results[result]):
        return False
    here = [value for value in source.values if value.last_read == op.position]
    return len(here) == 1 and _is_read_in_place(here[0], op, result, over)


def _share_in_place(colocation: Colocation, op: ScheduledOp) -> None:
    """Let each result of ``op`` that shares no memory overwrite an operand, if ``op`` allows it.

    The operand must have the size of the result and be dead after ``op``.
    """
    if type(op) is not ScheduledOp:
        return
    for number, result in enumerate(op.results):
        target = colocation.groups[result]
        if target.kind is GroupKind.PARAMETER or len(target.values) > 1 or not result.size:
            continue
        over = writes_over(op, number)
        for operand in over:
            source = colocation.groups[op.operands[operand].value]
            if source is target or not _can_share(source, op, number, over):
                continue
            if source.kind is GroupKind.OUTPUT and target.kind is GroupKind.OUTPUT:
                continue
            keep, other = (target, source) if target.kind is GroupKind.OUTPUT else (source, target)
            colocation.merge(keep, other)
            break
