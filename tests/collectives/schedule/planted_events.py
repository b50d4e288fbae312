"""Ordering bugs of single devices, planted in programs that are right together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from collectives.schedule.checker import Event, Group, Phase


def start(name: str, *group: int) -> Event:
    return Event(Phase.START, name, group)


def done(name: str, *group: int) -> Event:
    return Event(Phase.DONE, name, group)


def meet(name: str, *group: int) -> list[Event]:
    """A blocking collective."""
    return [start(name, *group), done(name, *group)]


def right_events() -> list[list[Event]]:
    """Rows, columns, all, rows again: four devices in one order, the first two in flight together."""
    found = []
    for device in range(4):
        row: Group = (0, 1) if device < 2 else (2, 3)
        column: Group = (0, 2) if device % 2 == 0 else (1, 3)
        found.append(
            [
                start("row", *row),
                start("column", *column),
                done("row", *row),
                done("column", *column),
                *meet("all", 0, 1, 2, 3),
                *meet("row2", *row),
            ]
        )
    return found


@dataclass(frozen=True)
class PlantedEvents:
    """Events that ``own`` changes on device ``device``, and the text ``says`` that the finding must match."""

    name: str
    says: str
    device: int
    own: Callable[[list[Event]], list[Event]]


def places(*order: int) -> Callable[[list[Event]], list[Event]]:
    """The events at these places."""
    return lambda own: [own[n] for n in order]


EVENTS: tuple[PlantedEvents, ...] = (
    PlantedEvents(
        "starts of one group swapped",
        r"group \(2, 3\): collective 0 is row on device 2 and row2 on device 3",
        3,
        places(6, 7, 1, 3, 4, 5, 0, 2),
    ),
    PlantedEvents(
        "a meeting left out",
        "collective 0 is all on device 0 and nothing on device 2",
        2,
        places(0, 1, 2, 3, 6, 7),
    ),
    PlantedEvents(
        "a meeting held twice",
        "collective 1 is nothing on device 0 and all on device 1",
        1,
        places(0, 1, 2, 3, 4, 5, 4, 5, 6, 7),
    ),
    PlantedEvents(
        "a wait ahead of its start",
        "in a cycle.*device 1 in row for",
        1,
        places(2, 0, 1, 3, 4, 5, 6, 7),
    ),
    PlantedEvents(
        "a wait for all ahead of the start of a row",
        "in a cycle",
        2,
        places(1, 3, 4, 5, 0, 2, 6, 7),
    ),
    PlantedEvents(
        "a later meeting of the row ahead of all",
        r"in a cycle.*device 3 in row2 for \[2\]",
        3,
        places(0, 1, 2, 3, 6, 7, 4, 5),
    ),
    PlantedEvents(
        "starts of two groups crossed",
        "no one order of collectives: .*starts",
        3,
        places(1, 0, 2, 3, 4, 5, 6, 7),
    ),
    PlantedEvents(
        "a window kept open across a meeting of all",
        r"all starts on device 0 while row is in flight: .* \[0, 1\]",
        0,
        places(0, 1, 3, 4, 5, 2, 6, 7),
    ),
    PlantedEvents(
        "two windows of one group",
        r"row2 starts on device 1 while row is in flight: .* \[0, 1\]",
        1,
        places(0, 1, 3, 6, 2, 4, 5, 7),
    ),
    PlantedEvents(
        "a device in a group that it is not in",
        r"device 3 is not in its group \(0, 1\)",
        3,
        lambda own: [start("row", 0, 1), *own[1:]],
    ),
    PlantedEvents(
        "a device in two groups of one collective",
        r"device 1 is in groups \(0, 1\) and \(1, 2\)",
        1,
        lambda own: [own[0], start("row", 1, 2), *own[1:]],
    ),
    PlantedEvents(
        "a group that names a device twice",
        r"group \(2, 2\) names a device twice",
        2,
        lambda own: [start("row", 2, 2), *own[1:]],
    ),
    PlantedEvents(
        "another idea of who takes part",
        "collective 0 is row on device 0 and row2 on device 1",
        1,
        lambda own: [start("row", 0, 1, 2), own[1], done("row", 0, 1, 2), *own[3:]],
    ),
)
