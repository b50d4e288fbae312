"""Schedules in which some dones follow their starts at once."""

from __future__ import annotations

from collectives.passes.async_creation import AsyncCreation
from spmd.hlo import HloModule
from tests.collectives.schedule.random_programs import program_with_collective
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("async-to-sync")
def modules(rng: Rng) -> HloModule:
    module = program_with_collective(rng)
    AsyncCreation().run(module)
    return module
