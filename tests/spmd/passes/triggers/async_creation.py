"""Schedules with collectives of every kind, some in loops and in branches."""

from __future__ import annotations

from spmd.hlo import HloModule
from tests.collectives.schedule.random_programs import program_with_collective
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("async-creation")
def modules(rng: Rng) -> HloModule:
    return program_with_collective(rng)
