"""Ordering bugs planted in right schedules are all found, and named."""

from __future__ import annotations

import re

import pytest

from collectives.schedule.checker import Event, check_events
from spmd.analysis.live_bytes import peak_bytes
from spmd.errors import CheckFailed
from tests.collectives.schedule.planted import MODULES, Planted, right_module
from tests.collectives.schedule.planted_events import EVENTS, PlantedEvents, right_events
from tests.collectives.schedule.window_checker import check_apart, check_one_order, check_windows


def test_what_they_are_planted_in_is_right() -> None:
    module = right_module()
    check_windows(module, peak_bytes(module))
    check_all(right_events())


def check_all(events: list[list[Event]]) -> None:
    check_events(events)
    check_apart(events)
    check_one_order(events)


def test_there_are_thirty() -> None:
    names = [one.name for one in (*MODULES, *EVENTS)]
    assert len(set(names)) == len(names) >= 30


@pytest.mark.parametrize("planted", MODULES, ids=lambda one: re.sub(r"\W+", "-", one.name))
def test_bugs_of_schedules(planted: Planted) -> None:
    module = right_module()
    limit = None if planted.spare is None else peak_bytes(module) + planted.spare
    planted.plant(module)
    with pytest.raises(CheckFailed, match=planted.says):
        check_windows(module, limit)


@pytest.mark.parametrize("planted", EVENTS, ids=lambda one: re.sub(r"\W+", "-", one.name))
def test_bugs_of_single_devices(planted: PlantedEvents) -> None:
    events = right_events()
    events[planted.device] = planted.own(events[planted.device])
    with pytest.raises(CheckFailed, match=planted.says):
        check_all(events)
