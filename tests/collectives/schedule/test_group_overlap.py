"""Tests of which collectives share more than one device, against the definition."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from collectives.schedule.checker import groups_of
from collectives.schedule.group_overlap import GroupOverlap, linked_devices
from spmd.hlo import HloInstruction, HloModule
from spmd.hlo.collective_opcodes import KIND
from tests.collectives.schedule.random_programs import random_program


def really_share(module: HloModule, one: HloInstruction, other: HloInstruction) -> bool:
    return any(
        len(set(mine).intersection(theirs)) > 1
        for mine in groups_of(one, module)
        for theirs in groups_of(other, module)
    )


@pytest.mark.parametrize("seed", range(10))
def test_random_groups(seed: int) -> None:
    module = random_program(seed, devices=6, steps=24)
    group_overlap = GroupOverlap(module)
    collectives = [x for x in module.all_instructions() if x.opcode in KIND]
    for one, other in combinations_with_replacement(collectives, 2):
        found = group_overlap.share(group_overlap.class_of(one), group_overlap.class_of(other))
        assert found == really_share(module, one, other), (one, other)


def test_linked_devices() -> None:
    assert linked_devices([(3, 1), (1, 5), (0, 2), (4, 4)]) == ((0, 2), (1, 3, 5), (4,))
    assert linked_devices([]) == ()
