"""All-gathers along several dimensions as one; along one dimension is what the pass's trigger tries."""

from __future__ import annotations

import pytest

from spmd.hlo import HloModule
from tests.spmd.passes.triggers.check import check_trigger
from tests.spmd.passes.triggers.devices import (
    equal_groups,
    ids_of,
    meeting,
    reducing_mode,
    several_devices,
)
from tests.spmd.passes.triggers.gathers import all_gather, part
from tests.spmd.passes.triggers.joined import parts
from tests.spmd.passes.triggers.programs import ANY_TYPE
from tests.spmd.passes.triggers.registry import Rng, Trigger


def along_several_dimensions(rng: Rng) -> HloModule:
    """Two of one array or more, and maybe one of two arrays."""
    p = several_devices(rng)
    mode = reducing_mode(p)
    groups = equal_groups(p, ids_of(p, mode))
    results = []
    for arrays in (1, 1, *([1] * p.integer(0, 2)), *([2] * p.integer(0, 1))):
        operands = [part(p, p.element_type(ANY_TYPE)) for _ in range(arrays)]
        dimension = p.integer(0, min(len(x.dims) for x in operands) - 1)
        results.extend(parts(p, all_gather(p, operands, meeting(p, mode, groups, dimension))))
    return p.module(*[p.after(x) for x in results])


@pytest.mark.parametrize("seed", range(40))
def test_members_stand_along_a_new_dimension(seed: int) -> None:
    check_trigger(
        Trigger("all-gather-combiner", along_several_dimensions, options="by-dimension=false"), seed
    )
