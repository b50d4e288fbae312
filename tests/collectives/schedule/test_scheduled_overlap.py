"""Tests of the rows kept of the scheduler's report: they have the names that the collectives have in the end."""

from __future__ import annotations

from collectives.schedule.scheduled_overlap import ScheduledCollective, scheduled_overlap
from spmd.machine.named import machine_named
from tests.collectives.schedule.test_latency_hiding import CHAIN, hide, scheduled

MACHINE = machine_named("tcp-cluster")


def test_a_row_goes_by_the_name_of_the_start() -> None:
    report = hide(scheduled(CHAIN), {"g": 5.0})
    found = scheduled_overlap(report, MACHINE, {})
    assert found.of("g-start") == ScheduledCollective("g-start")
    assert found.of("g") is None
    assert (found.machine, found.per_exchange) == ("tcp-cluster", 1)


def test_what_blocks_again_goes_by_its_own_name() -> None:
    report = hide(scheduled(CHAIN), {"g": 5.0})
    found = scheduled_overlap(report, MACHINE, {"g-start": "g.1"})
    assert found.collectives == (ScheduledCollective("g.1"),)
