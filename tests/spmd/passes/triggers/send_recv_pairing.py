"""Permutes between partitions, written as sends and receives."""

from __future__ import annotations

from collectives.passes.collective_permute_decomposer import CollectivePermuteDecomposer
from spmd.hlo import HloModule
from tests.spmd.passes.triggers import collective_permute_decomposer
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("send-recv-pairing")
def modules(rng: Rng) -> HloModule:
    module = collective_permute_decomposer.modules(rng)
    CollectivePermuteDecomposer().run(module)
    return module
