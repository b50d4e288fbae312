"""Requirements of a schedule with collectives in flight, besides that it can run at all
(collectives/schedule/checker.py).

    one order       there is one order of all collectives in which every device starts those that it takes part in
    apart           collectives in flight on a device at one time have no two devices in common
    within memory   live bytes stay within the limit

"Apart" is asked where collectives are kernels that hold on to a device until their peers come: "ordered" and "free of
cycles" are not enough then, as what is in flight may be taken up in any order, and two groups that share two devices
can wait for each other. Messages hold on to nothing.
Written from the definition; shares nothing with the scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from collectives.schedule.checker import Event, GroupNumbers, Phase, checked_events
from spmd.analysis.live_bytes import peak_bytes
from spmd.errors import CheckFailed
from spmd.hlo import HloModule

#: One run of a collective: its name, and how many times its device has started it before.
_Run = tuple[str, int]


def check_windows(
    module: HloModule, memory_limit: int | None = None, *, apart: bool = True
) -> None:
    """Raise CheckFailed with the first violation in a SCHEDULED module, those of ``check_schedule`` first.

    ``apart``: whether collectives in flight may not have two devices in common (see above). That is not required of
    collectives by messages.
    """
    events = checked_events(module)
    if apart:
        check_apart(events)
    check_one_order(events)
    if memory_limit is not None:
        check_memory(module, memory_limit)


def check_apart(events: Sequence[Sequence[Event]]) -> None:
    """Raise CheckFailed if two collectives in flight have more than one device in common. ``events[d]``: the events of
    device d, in order.
    """
    numbers = GroupNumbers()
    shared: dict[tuple[int, int], list[int]] = {}
    for device, own in enumerate(events):
        in_flight: dict[str, int] = {}
        for event in own:
            if event.phase is Phase.DONE:
                in_flight.pop(event.collective, None)
                continue
            mine = numbers.of(event.group)
            for other, group in in_flight.items():
                if (mine, group) not in shared:
                    shared[mine, group] = sorted(numbers.members[mine] & numbers.members[group])
                if len(shared[mine, group]) > 1:
                    raise CheckFailed(
                        f"{event.collective} starts on device {device} while {other} is in flight: their groups share "
                        f"devices {shared[mine, group]}"
                    )
            in_flight[event.collective] = mine


def check_one_order(events: Sequence[Sequence[Event]]) -> None:
    """Raise CheckFailed unless the orders in which devices start collectives are parts of one order."""
    after: dict[_Run, dict[_Run, int]] = {}
    waiting: dict[_Run, int] = {}
    for device, own in enumerate(events):
        runs = _starts(own)
        for run in runs:
            waiting.setdefault(run, 0)
        for run, later in pairwise(runs):
            if later not in after.setdefault(run, {}):
                after[run][later] = device
                waiting[later] += 1
    ready = [run for run, count in waiting.items() if not count]
    while ready:
        run = ready.pop()
        del waiting[run]
        for later in after.get(run, ()):
            waiting[later] -= 1
            if not waiting[later]:
                ready.append(later)
    if waiting:
        raise CheckFailed(f"no one order of collectives: {_circle(waiting, after)}")


def _starts(own: Sequence[Event]) -> list[_Run]:
    count: dict[str, int] = {}
    runs = []
    for event in own:
        if event.phase is Phase.START:
            runs.append((event.collective, count.get(event.collective, 0)))
            count[event.collective] = runs[-1][1] + 1
    return runs


def _circle(waiting: dict[_Run, int], after: dict[_Run, dict[_Run, int]]) -> str:
    """Describe the cycle of devices: each remaining run follows another remaining one."""
    before = {
        later: (run, device)
        for run, followers in after.items()
        if run in waiting
        for later, device in followers.items()
        if later in waiting
    }
    run = next(iter(waiting))
    seen: dict[_Run, int] = {}
    path: list[_Run] = []
    while run not in seen:
        seen[run] = len(path)
        path.append(run)
        run = before[run][0]
    circle = path[seen[run] :]
    parts = [
        f"device {before[later][1]} starts {before[later][0][0]} before {later[0]}"
        for later in circle
    ]
    return "; ".join(parts)


def check_memory(module: HloModule, limit: int) -> None:
    """Raise CheckFailed if the live bytes of the schedule (spmd.analysis.live_bytes) exceed ``limit``."""
    needed = peak_bytes(module)
    if needed > limit:
        raise CheckFailed(f"{module.name} needs {needed:,} bytes, the limit is {limit:,}")
