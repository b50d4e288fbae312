"""What a device took down, read back: every thunk in its place, loops around their trips, collectives in flight."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from runtime.executable import Executable
from runtime.thunks.thunk import walk
from runtime.timeline.events import Event, Stream, events_of
from runtime.timeline.recorder import KEPT_STEPS, Recorder
from tests.runtime.programs import ALIASING, ASYNC_COLLECTIVES, COLLECTIVES, compiled, random_inputs


def recorded(text: str, steps: int = 1) -> tuple[Executable, list[list[list[Event]]]]:
    """Events of every device's steps."""
    executable = compiled(text)
    executable.record = True
    for _ in range(steps):
        executable.run_devices([random_inputs(executable.module, d) for d in executable.devices])
    root = executable.program.thunks
    return executable, [[events_of(root, step) for step in own] for own in executable.stamps()]


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
    assert {event.name for event in events} <= {t.name for t in walk(executable.program.thunks)}


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


def test_the_last_steps_are_kept() -> None:
    _, [steps] = recorded(ALIASING["elementwise"], KEPT_STEPS + 3)
    assert len(steps) == KEPT_STEPS
    assert all(len(step) == len(steps[0]) for step in steps)
    assert steps[0][-1].end <= steps[1][0].start


def test_steps_with_more_stamps_than_a_log_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.executor.Recorder", partial(Recorder, log_stamps=3))
    executable, [[events]] = recorded(ALIASING["swap_loop"])
    monkeypatch.undo()
    _, [[want]] = recorded(ALIASING["swap_loop"])
    assert len(executable.stamps()[0][0]) > 9
    assert [(event.name, event.depth) for event in events] == [(e.name, e.depth) for e in want]
    assert all(a.end <= b.end for a, b in pairwise(events))


def test_nothing_is_taken_down_unless_asked_for() -> None:
    executable = compiled(ALIASING["elementwise"])
    executable.run(*[np.ones((64, 32), np.float32)] * 2)
    assert executable.stamps() == []
