"""Causes of a device's waits for a collective, in seconds, and a text of the largest cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TypeAlias

from collectives.schedule.phases import is_done
from collectives.simulate.activities import Site
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass

#: The last producer of a collective's operands and the first user of its result, in its computation's schedule.
Neighbours: TypeAlias = tuple[HloInstruction | None, HloInstruction | None]

#: Fraction of the exposed time below which a cause is attributed to rounding.
_SLIGHT = 2e-5
_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


class Cause(Enum):
    """Cause of the exposed time of a collective."""

    LATE_PEER = "late peer"
    """Another member was not ready."""
    CONTENTION = "contention"
    """Other transfers shared its links."""
    DEPENDENCY = "dependency"
    """Too little work is independent of it: the rest precedes it or depends on it."""
    BLOCKING = "blocking"
    """There is independent work, but the collective is synchronous: it has no start and done to place work between."""
    LINKS = "links"
    """There is independent work, but its computation sends for longer over the same links than it computes."""
    MEMORY = "memory limit"
    """There is independent work, but according to the scheduler overlap would exceed the memory limit."""
    ORDER = "order"
    """There is independent work, but the schedule places it elsewhere."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Figures of one collective on one device, from which causes are derived.

    exposed: seconds of a step for which the device waits.
    executions: number of executions in a step.
    alone: seconds of one execution on free links.
    independent: seconds of work that may overlap one execution, by dataflow.
    work: seconds of all work in its computation.
    links: by exchange that the collective uses, the seconds for which its computation keeps the exchange busy.
    limited: seconds of one execution that are exposed because of a memory limit.
    late: seconds of waiting, by the device that was late.
    contended: seconds of waiting, by (exchange, other collective).
    """

    exposed: float
    executions: float
    alone: float
    independent: float
    work: float
    links: Mapping[str, float]
    limited: float
    late: Mapping[int, float]
    contended: Mapping[tuple[str, str], float]


def causes_of(site: Site, waiting: Waiting) -> tuple[tuple[Cause, float], ...]:
    """Return the seconds of each cause, the largest first. Their sum is the exposed time."""
    if waiting.exposed <= 0.0:
        return ()
    late = min(sum(waiting.late.values()), waiting.exposed)
    contended = min(sum(waiting.contended.values()), waiting.exposed - late)
    rest = waiting.exposed - late - contended
    never = max(waiting.alone - waiting.independent, 0.0) * waiting.executions
    dependent = min(never, rest)
    avoidable = rest - dependent
    limited = min(waiting.limited * waiting.executions, avoidable)
    found = [
        (Cause.LATE_PEER, late),
        (Cause.CONTENTION, contended),
        (Cause.DEPENDENCY, dependent),
        (Cause.MEMORY, limited),
        (_avoidable(site, waiting), avoidable - limited),
    ]
    least = _SLIGHT * waiting.exposed
    return tuple(sorted((one for one in found if one[1] > least), key=lambda one: -one[1]))


def _avoidable(site: Site, waiting: Waiting) -> Cause:
    """Return the cause of exposed time that neither dataflow nor the memory limit explains."""
    if site.is_blocking:
        return Cause.BLOCKING
    return Cause.LINKS if max(waiting.links.values(), default=0.0) > waiting.work else Cause.ORDER


def why(
    site: Site,
    waiting: Waiting,
    causes: Sequence[tuple[Cause, float]],
    around: Neighbours,
) -> str:
    """Return a text of the largest cause; "" if nothing is exposed."""
    if not causes:
        return ""
    cause = causes[0][0]
    if cause is Cause.LATE_PEER:
        device = max(waiting.late, key=lambda one: waiting.late[one])
        return (
            f"late peer: device {device} is ready {brief(causes[0][1] / waiting.executions)} later"
        )
    if cause is Cause.CONTENTION:
        exchange, other = max(waiting.contended, key=lambda one: waiting.contended[one])
        return f"contention: {other} uses {exchange} at the same time"
    concurrent = (
        f"{brief(waiting.independent)} of work can overlap its transfer of {brief(waiting.alone)}"
    )
    if cause is Cause.DEPENDENCY:
        return f"dependency: {concurrent}; {_between(site.instruction, around)}"
    if cause is Cause.BLOCKING:
        return f"blocking: it has no start and done, although {concurrent}"
    if cause is Cause.MEMORY:
        return f"memory limit: the scheduler had too little memory to overlap it, although {concurrent}"
    if cause is Cause.LINKS:
        exchange = max(waiting.links, key=lambda one: waiting.links[one])
        sent = brief(waiting.links[exchange])
        return f"links: its computation keeps {exchange} busy for {sent} and has {brief(waiting.work)} of work"
    between = _between(site.instruction, around)
    return f"order: {concurrent}, but the schedule places that work elsewhere; {between}"


def _between(start: HloInstruction, around: Neighbours) -> str:
    """Return a text of the instructions between which ``start`` is scheduled by dataflow."""
    made, needed = around
    assert start.parent is not None
    by = (
        f"{made.name} produces its operand"
        if made
        else f"its operand is an input of {start.parent.name}"
    )
    to = f"{needed.name} uses its result" if needed else f"{start.parent.name} returns its result"
    return f"{by}, {to}"


def neighbours(
    start: HloInstruction,
    seconds: Callable[[HloInstruction], float],
    position: Callable[[HloInstruction], int],
) -> Neighbours:
    """Return the last producer of the operands of ``start`` and the first user of its result, in schedule order.

    Instructions that take no time are looked through. Either result is None if there is no such instruction.
    ``seconds`` returns the time of an instruction with its callees, ``position`` its index in the schedule.
    """
    dones = [user for user in start.users if is_done(user)]
    end = dones[0] if dones else start
    return (
        max(_nearest(start, seconds, lambda x: x.operands), key=position, default=None),
        min(_nearest(end, seconds, lambda x: x.users), key=position, default=None),
    )


def _nearest(
    x: HloInstruction,
    seconds: Callable[[HloInstruction], float],
    around: Callable[[HloInstruction], tuple[HloInstruction, ...]],
) -> list[HloInstruction]:
    """Return the instructions that take time and are reached from ``x`` through instructions that take none."""
    found: list[HloInstruction] = []
    seen = {x: None}
    stack = [*around(x)]
    while stack:
        one = stack.pop()
        if one not in seen:
            seen[one] = None
            if seconds(one) > 0.0:
                found.append(one)
            else:
                stack.extend(around(one))
    return found


def brief(seconds: float) -> str:
    """Return the time with three digits and a fitting unit."""
    unit, size = unit_of(seconds)
    return f"{seconds / size:.3g} {unit}"


def unit_of(seconds: float) -> tuple[str, float]:
    """Return the unit that fits a time, and its seconds."""
    return next((u for u in _UNITS if abs(seconds) >= u[1]), _UNITS[-1])
