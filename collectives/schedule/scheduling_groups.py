"""Scheduling groups: instructions that their author wants next to one another, so that they overlap.

    s = all-gather-start(w), frontend_attributes={_scheduling_group_id="1"}       s
    m = dot(a, b), frontend_attributes={_scheduling_group_id="1"}            =>   m     and nothing in between
    d = all-gather-done(s), frontend_attributes={_scheduling_group_id="1"}        d

A start and its done are in one group. Groups are per computation, as in XLA.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from collectives.schedule.phases import is_done, is_start
from spmd.errors import SpmdError
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass

SCHEDULING_GROUP = "_scheduling_group_id"


class ScheduleError(SpmdError):
    """Error of a schedule that cannot be made as it is asked for."""


@dataclass(frozen=True)
class Block:
    """One group's instructions, in the order in which they will stand."""

    name: str
    members: tuple[HloInstruction, ...]


def group_of(x: HloInstruction) -> str | None:
    """Return the id of the scheduling group. A start and its done have one group, whichever of them names it."""
    halves = [x]
    if is_done(x):
        halves.append(x.operand(0))
    elif is_start(x):
        halves.extend(x.users)
    names = (half.annotations.frontend(SCHEDULING_GROUP) or "" for half in halves)
    return next((name.strip('"') for name in names if name.strip('"')), None)


def blocks_of(computation: HloComputation) -> dict[HloInstruction, Block]:
    """Return the group of each instruction that is in one. Raises ScheduleError if another instruction has to run in
    between.
    """
    groups: dict[str, list[HloInstruction]] = {}
    for x in computation.instructions:
        name = group_of(x)
        if name is not None:
            groups.setdefault(name, []).append(x)
    found: dict[HloInstruction, Block] = {}
    for name, members in groups.items():
        inside = dict.fromkeys(members)
        _check_convex(computation, name, inside)
        block = Block(name, tuple(_overlapping(inside)))
        found.update(dict.fromkeys(members, block))
    if len(groups) > 1:
        _check_acyclic(computation, found)
    return found


def _neighbours(x: HloInstruction) -> Iterator[HloInstruction]:
    yield from x.operands
    yield from x.control_predecessors


def _check_convex(
    computation: HloComputation, name: str, inside: Mapping[HloInstruction, None]
) -> None:
    """Raise ScheduleError if a path leaves the group and comes back."""
    needs: dict[HloInstruction, bool] = {}
    for x in computation.instructions:
        if x in inside:
            between = next((y for y in _neighbours(x) if needs.get(y)), None)
            if between is not None:
                raise ScheduleError(
                    f"scheduling group {name} of {computation.name} cannot stay together: {between.name} needs one of "
                    f"its instructions, and {x.name} needs {between.name}"
                )
        else:
            needs[x] = any(y in inside or needs.get(y, False) for y in _neighbours(x))


def _check_acyclic(computation: HloComputation, blocks: Mapping[HloInstruction, Block]) -> None:
    """Raise ScheduleError if groups depend on each other both ways."""
    after: dict[str, dict[str, HloInstruction]] = {}
    seen: dict[HloInstruction, dict[str, None]] = {}
    for x in computation.instructions:
        names: dict[str, None] = {}
        for y in _neighbours(x):
            names.update(seen[y])
        own = blocks.get(x)
        if own is not None:
            for name in names:
                if name != own.name:
                    after.setdefault(own.name, {}).setdefault(name, x)
            names = {own.name: None, **names}
        seen[x] = names
    for later, earlier in after.items():
        for name, x in earlier.items():
            if later in after.get(name, {}):
                raise ScheduleError(
                    f"scheduling groups {later} and {name} of {computation.name} need each other: one through "
                    f"{x.name}, the other through {after[name][later].name}"
                )


def _overlapping(inside: Mapping[HloInstruction, None]) -> Sequence[HloInstruction]:
    """Return an order with starts as early as their operands allow, and dones as late as their users allow."""
    waiting = {x: sum(y in inside for y in dict.fromkeys(_neighbours(x))) for x in inside}
    order: list[HloInstruction] = []
    ready = [x for x, count in waiting.items() if not count]
    position = {x: n for n, x in enumerate(inside)}
    while ready:
        x = min(ready, key=lambda y: (not is_start(y), is_done(y), position[y]))
        ready.remove(x)
        order.append(x)
        for user in dict.fromkeys((*x.users, *x.control_successors)):
            if user in inside:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
    return order
