"""Tests of recorded events: every thunk in its place, loops around their trips, collectives in flight."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from runtime.cpu.step.recorder import Recorder
from runtime.device_program import RETAINED_STEPS
from runtime.executable import Executable
from runtime.program.thunks import traverse
from runtime.timeline.events import CollectiveEvent, Event, Stream, events_of
from tests.runtime.programs import (
    ALIASING,
    ASYNC_COLLECTIVES,
    CARRIED_BY_PYTHON,
    COLLECTIVES,
    compiled,
    random_inputs,
)


def recorded(
    text: str, steps: int = 1, reference_every: int = 0, *, keep_order: bool = False
) -> tuple[Executable, list[list[list[Event]]]]:
    """Events of every device's steps."""
    executable = compiled(text, keep_order=keep_order)
    executable.record, executable.reference_every = True, reference_every
    for _ in range(steps):
        executable.run_devices([random_inputs(executable.module, d) for d in executable.devices])
    root = executable.program.thunks
    stamps = executable.recorded_steps()
    return executable, [[events_of(root, step.timestamps) for step in own] for own in stamps]


def test_every_thunk_of_a_straight_program_once_and_without_gaps() -> None:
    executable, [[events]] = recorded(ALIASING["elementwise"])
    inner = [event for event in events if event.depth == 1]
    assert [event.name for event in inner] == [t.name for t in executable.program.thunks.thunks]
    for before, after in pairwise(inner):
        assert before.end == after.start
    (whole,) = (event for event in events if event.depth == 0)
    assert (whole.start, whole.end) == (inner[0].start, whole.end)
    assert whole.end >= inner[-1].end
    assert inner[0].bytes == 3 * 64 * 32 * 4


@pytest.mark.parametrize("name", ["swap_loop", "nested_update", "conditional"])
def test_thunks_inside_others_lie_within_them(name: str) -> None:
    executable, [[events]] = recorded(ALIASING[name])
    kinds = Counter(event.kind for event in events)
    assert kinds["While"] + kinds["Conditional"] >= 1
    for event in events:
        around = [
            outer
            for outer in events
            if outer.depth == event.depth - 1
            and outer.start <= event.start <= event.end <= outer.end
        ]
        assert len(around) == (1 if event.depth else 0) or not event.nanoseconds
    assert {event.name for event in events} <= {t.name for t in traverse(executable.program.thunks)}


@pytest.mark.parametrize("text", [COLLECTIVES, ASYNC_COLLECTIVES], ids=["blocking", "async"])
def test_collectives_are_in_flight_from_start_to_done(text: str) -> None:
    executable, devices = recorded(text)
    assert len(devices) == executable.num_devices > 1
    for (events,) in devices:
        flights = [event for event in events if event.stream is Stream.COMMUNICATION]
        starts = {event.name: event for event in events if event.kind == "CollectiveStart"}
        assert {event.name for event in flights} == set(starts)
        for flight in flights:
            assert flight.start == starts[flight.name].start
            assert flight.end >= starts[flight.name].end
            assert flight.bytes > 0


@pytest.mark.parametrize("text", [COLLECTIVES, ASYNC_COLLECTIVES], ids=["blocking", "async"])
def test_collectives_land_between_their_issue_and_the_end_of_the_wait(text: str) -> None:
    _, devices = recorded(text, steps=2)
    for events in (events for steps in devices for events in steps):
        waits = {(event.start, event.end) for event in events if event.kind == "CollectiveDone"}
        for flight in flights_of(events):
            assert flight.met is not None
            assert flight.issued <= flight.met <= flight.landed <= flight.end
            assert flight.issued <= flight.wait_start <= flight.end
            assert (flight.wait_start, flight.end) in waits


def flights_of(events: list[Event]) -> list[CollectiveEvent]:
    return [event for event in events if isinstance(event, CollectiveEvent)]


def test_a_blocking_step_waits_where_collectives_start() -> None:
    executable, devices = recorded(ASYNC_COLLECTIVES, steps=4, reference_every=2, keep_order=True)
    for own, steps in zip(executable.recorded_steps(), devices, strict=True):
        assert [(step.number, step.is_blocking) for step in own] == [
            (1, False), (2, True), (3, False), (4, True),
        ]  # fmt: skip
        for step, events in zip(own, steps, strict=True):
            flights = flights_of(events)
            starts = [event for event in events if event.kind == "CollectiveStart"]
            assert [flight.name for flight in flights] == [start.name for start in starts]
            waited_at_once = [
                flight.wait_start == start.end
                for flight, start in zip(flights, starts, strict=True)
            ]
            assert all(waited_at_once) is step.is_blocking
            assert all(a.end <= b.end for a, b in pairwise(events))


@pytest.mark.parametrize("text", [COLLECTIVES, ASYNC_COLLECTIVES, CARRIED_BY_PYTHON], ids=["blocking", "async", "in Python"])  # fmt: skip
@pytest.mark.parametrize("record", [False, True], ids=["bare", "recorded"])
def test_blocking_steps_give_the_same_bits(text: str, record: bool) -> None:
    want, executable = compiled(text), compiled(text)
    executable.reference_every, executable.record = 2, record
    for _ in range(3):
        inputs = [random_inputs(executable.module, d) for d in executable.devices]
        got = executable.run_devices(inputs)
        assert [[x.tobytes() for x in own] for own in got] == [
            [x.tobytes() for x in own] for own in want.run_devices(inputs)
        ]


def test_landings_that_find_no_room_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.cpu.step.recorder.Recorder", partial(Recorder, log_capacity=1))
    _, devices = recorded(ASYNC_COLLECTIVES, steps=2, reference_every=2)
    for events in (events for steps in devices for events in steps):
        assert flights_of(events)
        assert all(f.issued <= f.landed <= f.end for f in flights_of(events))


def test_a_collective_that_python_carries_lands_when_it_has_been_waited_for() -> None:
    _, devices = recorded(CARRIED_BY_PYTHON)
    for (events,) in devices:
        (flight,) = flights_of(events)
        assert flight.landed == flight.end


def test_the_last_steps_are_kept() -> None:
    executable, [steps] = recorded(ALIASING["elementwise"], RETAINED_STEPS + 3)
    assert len(steps) == RETAINED_STEPS
    assert [step.number for step in executable.recorded_steps()[0]] == [
        *range(4, RETAINED_STEPS + 4)
    ]
    assert all(len(step) == len(steps[0]) for step in steps)
    assert steps[0][-1].end <= steps[1][0].start


def test_steps_with_more_stamps_than_a_log_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.cpu.step.recorder.Recorder", partial(Recorder, log_capacity=3))
    executable, [[events]] = recorded(ALIASING["swap_loop"])
    monkeypatch.undo()
    _, [[want]] = recorded(ALIASING["swap_loop"])
    assert len(executable.recorded_steps()[0][0].timestamps) > 9
    assert [(event.name, event.depth) for event in events] == [(e.name, e.depth) for e in want]
    assert all(a.end <= b.end for a, b in pairwise(events))


def test_nothing_is_taken_down_unless_asked_for() -> None:
    executable = compiled(ALIASING["elementwise"])
    executable.run(*[np.ones((64, 32), np.float32)] * 2)
    assert executable.recorded_steps() == []
