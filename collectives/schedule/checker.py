"""The schedule checker: whether an order of instructions can run on all devices without a wait that never ends.

    topological      operands and control predecessors stand before their users
    paired           every start has one done, behind it, in the same computation
    grouped          a device is in at most one group of a collective, and every member has the same group
    ordered          members of a group meet in the same collectives in the same order
    free of cycles   with waits at dones, every device reaches its end: no cyclic wait across overlapping groups

Written from the definition; shares nothing with the scheduler or the thunks. Loops count as one trip. Where the
selector of a conditional depends on the device alone, each device takes its own branch; else branches count as run one
after the other, as whether devices agree on trips and branches is a matter of values then, not of schedules.
``tests/collectives/schedule/window_checker.py`` asks more of what a latency-hiding scheduler makes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TypeAlias

from collectives.passes.device_scalars import values_by_device
from spmd.errors import CheckFailed
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.hlo.collective_opcodes import START_AND_DONE, SYNCHRONOUS_COLLECTIVES
from spmd.hlo.opcode_roles import wrapped
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectivePermuteAttrs, ConditionalAttrs
from spmd.ops.groups import device_groups, device_pairs, group_key

Group: TypeAlias = tuple[int, ...]

_DONE_OF = {
    **dict(START_AND_DONE.values()),
    Opcode.ASYNC_START: Opcode.ASYNC_DONE,
    Opcode.COPY_START: Opcode.COPY_DONE,
}


class Phase(Enum):
    """A blocking collective is a start and a done."""

    START = "start"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Event:
    """One device starts ``collective`` among ``group``, or waits for it."""

    phase: Phase
    collective: str
    group: Group


def check_schedule(module: HloModule) -> None:
    """Raise CheckFailed with the first violation in a SCHEDULED module."""
    checked_events(module)


def checked_events(module: HloModule) -> list[list[Event]]:
    """Check the schedule as ``check_schedule``, and return the events of each device."""
    for computation in module.computations_post_order():
        check_topological(computation)
        check_pairs(computation)
    count = module.num_partitions * module.replica_count
    events = events_of_devices(module, count)
    check_events(events)
    return events


def check_topological(computation: HloComputation) -> None:
    seen: dict[HloInstruction, None] = {}
    for instruction in computation.instructions:
        for before in (*instruction.operands, *instruction.control_predecessors):
            if before not in seen:
                raise CheckFailed(
                    f"schedule of {computation.name}: {instruction.name} is scheduled before {before.name}, which it "
                    "needs"
                )
        seen[instruction] = None


def check_pairs(computation: HloComputation) -> None:
    """Raise CheckFailed unless each start has one done. In a topological order, a done in the same computation then
    follows its start.
    """
    for start in computation.instructions:
        wanted = _DONE_OF.get(start.opcode)
        if wanted is None:
            continue
        dones = [user for user in start.users if user.opcode is wanted]
        if len(dones) != 1:
            raise CheckFailed(
                f"schedule of {computation.name}: {start.name} has {len(dones)} {wanted}, expected one"
            )


# ---- order and participants of collectives
def events_of_devices(module: HloModule, count: int) -> list[list[Event]]:
    """Return, for each device, the collectives that it takes part in, in schedule order; those of callees where they
    are called.

    Members share an event, and collectives of the same groups share their groups.
    """
    events: list[list[Event]] = [[] for _ in range(count)]
    known: dict[Hashable, tuple[Group, ...]] = {}
    for instruction, there in _in_order(module.entry, range(count), _with_collectives(module)):
        for phase, collective in _phases(instruction):
            key = group_key(wrapped(collective))
            if key not in known:
                known[key] = groups_of(collective, module)
                _check_devices(collective, known[key], count)
            for group in known[key]:
                event = Event(phase, collective.name, group)
                for device in group:
                    if device in there:
                        events[device].append(event)
    return events


def _check_devices(collective: HloInstruction, groups: Iterable[Group], count: int) -> None:
    for group in groups:
        for device in group:
            if not 0 <= device < count:
                raise CheckFailed(
                    f"{collective.name}: device {device} of group {group} is not one of {count}"
                )


def _in_order(
    computation: HloComputation, there: Collection[int], entered: Container[HloComputation]
) -> Iterator[tuple[HloInstruction, Collection[int]]]:
    """Yield the instructions in order of execution, with the devices that run them. Of callees, only those of
    ``entered`` are visited.
    """
    for instruction in computation.instructions:
        if instruction.opcode not in (Opcode.CALL, Opcode.WHILE, Opcode.CONDITIONAL):
            yield instruction, there
            continue
        callees = instruction.called_computations
        if not any(callee in entered for callee in callees):
            continue
        is_branch = instruction.opcode is Opcode.CONDITIONAL
        taken = _branches_by_device(instruction) if is_branch else None
        for number, callee in enumerate(callees):
            inside = there if taken is None else {d for d in there if taken[d] == number}
            if callee in entered:
                yield from _in_order(callee, inside, entered)


def _with_collectives(module: HloModule) -> dict[HloComputation, None]:
    """Return the computations that contain a collective, or call one that does."""
    found: dict[HloComputation, None] = {}
    for computation in module.computations_post_order():
        for instruction in computation.instructions:
            inside = any(callee in found for callee in instruction.called_computations)
            if inside or any(True for _ in _phases(instruction)):
                found[computation] = None
                break
    return found


def _branches_by_device(conditional: HloInstruction) -> list[int] | None:
    """Return the branch that each device takes; None if the selector depends on more than the device."""
    values = values_by_device(conditional.operand(0))
    if values is None:
        return None
    if conditional.attrs_as(ConditionalAttrs).predicated:
        return [0 if value else 1 for value in values]
    last = len(conditional.called_computations) - 1
    return [value if 0 <= value <= last else last for value in values.tolist()]


def _phases(instruction: HloInstruction) -> Iterator[tuple[Phase, HloInstruction]]:
    """Yield the phases of a collective that the instruction performs; none for copies and other async operations."""
    if instruction.opcode in SYNCHRONOUS_COLLECTIVES:
        yield Phase.START, instruction
        yield Phase.DONE, instruction
    elif instruction.opcode in _DONE_OF and _is_collective(instruction):
        yield Phase.START, instruction
    elif instruction.opcode in _DONE_OF.values() and _is_collective(instruction.operand(0)):
        yield Phase.DONE, instruction.operand(0)


def _is_collective(start: HloInstruction) -> bool:
    if start.opcode is Opcode.ASYNC_START:
        return wrapped(start).opcode in SYNCHRONOUS_COLLECTIVES
    return start.opcode is not Opcode.COPY_START


def groups_of(collective: HloInstruction, module: HloModule) -> tuple[Group, ...]:
    """Return the groups of devices of a collective or its start."""
    collective = wrapped(collective)
    sizes = module.num_partitions, module.replica_count
    if isinstance(collective.attrs, CollectivePermuteAttrs):
        return _linked(device_pairs(collective, *sizes))
    return device_groups(collective, *sizes)


def _linked(pairs: Iterable[tuple[int, int]]) -> tuple[Group, ...]:
    """Return the devices that pairs link, directly or through others: none of them ends before all have begun."""
    group_of: dict[int, list[int]] = {}
    for source, target in pairs:
        one, other = (group_of.setdefault(device, [device]) for device in (source, target))
        if one is not other:
            small, large = sorted((one, other), key=len)
            large += small
            group_of.update(dict.fromkeys(small, large))
    return tuple(sorted({tuple(sorted(group)) for group in group_of.values()}))


class GroupNumbers:
    """Numbers of groups, equal for equal ones, and their members.

    A tuple is looked at once, however many events share it: it must live as long as this does.
    """

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.members: list[frozenset[int]] = []
        self._by_identity: dict[int, int] = {}
        self._by_value: dict[Group, int] = {}

    def of(self, group: Group) -> int:
        number = self._by_identity.get(id(group))
        if number is None:
            number = self._by_value.setdefault(group, len(self.groups))
            if number == len(self.groups):
                self.groups.append(group)
                self.members.append(frozenset(group))
            self._by_identity[id(group)] = number
        return number


def check_events(events: Sequence[Sequence[Event]]) -> None:
    """Raise CheckFailed unless the events are grouped, ordered and free of cycles. ``events[d]``: the events of device
    d, in order.
    """
    numbers = GroupNumbers()
    _check_grouped(events, numbers)
    _check_ordered(events, numbers)
    _check_progress(events, numbers)


def _check_grouped(events: Sequence[Sequence[Event]], numbers: GroupNumbers) -> None:
    for device, own in enumerate(events):
        group_of: dict[str, int] = {}
        for event in own:
            number = numbers.of(event.group)
            members = numbers.members[number]
            if device not in members:
                raise CheckFailed(
                    f"{event.collective}: device {device} is not in its group {event.group}"
                )
            if len(members) != len(event.group):
                raise CheckFailed(f"{event.collective}: group {event.group} names a device twice")
            before = group_of.setdefault(event.collective, number)
            if before != number:
                raise CheckFailed(
                    f"{event.collective}: device {device} is in groups {numbers.groups[before]} and {event.group}"
                )


def _check_ordered(events: Sequence[Sequence[Event]], numbers: GroupNumbers) -> None:
    """Raise CheckFailed unless all members start the collectives of their group in the same order, and
    equally often.
    """
    orders: dict[int, dict[int, list[str]]] = {}
    for device, own in enumerate(events):
        for event in own:
            if event.phase is Phase.START:
                by_device = orders.setdefault(numbers.of(event.group), {})
                by_device.setdefault(device, []).append(event.collective)
    for number, by_device in orders.items():
        group = numbers.groups[number]
        first = by_device.get(group[0], [])
        for device in group[1:]:
            _compare_orders(group, (group[0], first), (device, by_device.get(device, [])))


def _compare_orders(group: Group, one: tuple[int, list[str]], other: tuple[int, list[str]]) -> None:
    if one[1] == other[1]:
        return
    for position in range(max(len(one[1]), len(other[1]))):
        names = [
            order[position] if position < len(order) else "nothing" for order in (one[1], other[1])
        ]
        if names[0] != names[1]:
            raise CheckFailed(
                f"group {group}: collective {position} is {names[0]} on device {one[0]} "
                f"and {names[1]} on device {other[0]}"
            )


#: A collective, and the number of the group that executes it.
_RendezvousKey: TypeAlias = tuple[str, int]


def _check_progress(events: Sequence[Sequence[Event]], numbers: GroupNumbers) -> None:
    """Let every device run until it waits for a start that another one has not reached. Raises CheckFailed if some wait
    for ever.
    """
    position = [0] * len(events)
    started: dict[_RendezvousKey, Counter[int]] = defaultdict(Counter)  # executions by device
    arrived: Counter[tuple[_RendezvousKey, int]] = (
        Counter()
    )  # devices that have started that execution
    finished: list[Counter[_RendezvousKey]] = [Counter() for _ in events]
    waiting: dict[_RendezvousKey, list[int]] = {}
    ready = list(range(len(events)))
    while ready:
        device = ready.pop()
        while position[device] < len(events[device]):
            event = events[device][position[device]]
            rendezvous = event.collective, numbers.of(event.group)
            if event.phase is Phase.START:
                started[rendezvous][device] += 1
                turn = started[rendezvous][device]
                arrived[rendezvous, turn] += 1
                if arrived[rendezvous, turn] == len(event.group):
                    ready.extend(waiting.pop(rendezvous, ()))
            elif arrived[rendezvous, finished[device][rendezvous] + 1] < len(event.group):
                waiting.setdefault(rendezvous, []).append(device)
                break
            else:
                finished[device][rendezvous] += 1
            position[device] += 1
    stuck = {
        device: events[device][p] for device, p in enumerate(position) if p < len(events[device])
    }
    if stuck:
        there = {
            device: started[event.collective, numbers.of(event.group)]
            for device, event in stuck.items()
        }
        raise CheckFailed(
            f"deadlock: devices wait for each other in a cycle: {_describe(stuck, there)}"
        )


def _describe(stuck: Mapping[int, Event], there: Mapping[int, Mapping[int, int]]) -> str:
    """Return a text of the devices that are stuck. ``there``: for each of them, the devices that have started its
    collective.
    """
    parts = []
    for device, event in list(stuck.items())[:8]:
        missing = [member for member in event.group if member not in there[device]]
        parts.append(f"device {device} in {event.collective} for {missing or list(event.group)}")
    return "; ".join(parts)
