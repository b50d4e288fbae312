"""Timelines of GPUs, read as those of processors are; a double's clock counts operations."""

from __future__ import annotations

import pytest

from runtime.executable import Executable
from runtime.timeline.events import CollectiveEvent, Event, Stream, events_of
from tests.runtime.gpu.doubles.engines import Doubles
from tests.runtime.programs import (
    ALIASING,
    ASYNC_COLLECTIVES,
    COLLECTIVES,
    assert_same,
    compiled,
    random_inputs,
)


def recorded(
    text: str, steps: int = 1, reference_every: int = 0
) -> tuple[Executable, list[list[list[Event]]]]:
    """Events of every device's steps."""
    executable = Doubles(ptx=True).on(compiled(text, keep_order=True))
    executable.record, executable.reference_every = True, reference_every
    inputs = [random_inputs(executable.module, d) for d in executable.devices]
    first = executable.run_devices(inputs)
    for _ in range(steps - 1):
        for got, want in zip(executable.run_devices(inputs), first, strict=True):
            assert_same(got, want)
    root = executable.program.thunks
    return executable, [
        [events_of(root, step.timestamps) for step in own] for own in executable.recorded_steps()
    ]


def test_every_thunk_once_in_order() -> None:
    executable, [[events]] = recorded(ALIASING["elementwise"])
    inner = [event for event in events if event.depth == 1]
    assert [event.name for event in inner] == [t.name for t in executable.program.thunks.thunks]
    assert all(event.end > event.start for event in inner)
    (whole,) = (event for event in events if event.depth == 0)
    assert whole.start <= inner[0].start
    assert whole.end >= inner[-1].end


@pytest.mark.parametrize("name", ["swap_loop", "nested_update", "conditional"])
def test_thunks_inside_others_lie_within_them(name: str) -> None:
    _, [[events]] = recorded(ALIASING[name])
    for event in events:
        if event.depth:
            assert any(
                outer.depth == event.depth - 1
                and outer.start <= event.start <= event.end <= outer.end
                for outer in events
            )


@pytest.mark.parametrize("reference_every", [0, 2])
@pytest.mark.parametrize("text", [COLLECTIVES, ASYNC_COLLECTIVES])
def test_collectives_are_in_flight_from_start_to_done(text: str, reference_every: int) -> None:
    executable, devices = recorded(text, 3, reference_every)
    for steps, own in zip(devices, executable.recorded_steps(), strict=True):
        assert [step.is_blocking for step in own] == [False, bool(reference_every), False]
        for events in steps:
            flights = [event for event in events if isinstance(event, CollectiveEvent)]
            assert flights
            for flight in flights:
                assert flight.stream is Stream.COMMUNICATION
                assert flight.start <= flight.wait_start <= flight.end
                assert flight.start <= flight.landed <= flight.end
