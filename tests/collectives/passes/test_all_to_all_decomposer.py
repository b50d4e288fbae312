"""All-to-alls of operands as all-to-alls of arrays; the other way round is what the pass's trigger tries."""

from __future__ import annotations

import pytest

from spmd.hlo import HloModule, Opcode
from tests.spmd.passes.triggers.check import check_trigger
from tests.spmd.passes.triggers.devices import equal_groups, meeting, several_devices
from tests.spmd.passes.triggers.permutes import exchanging_ids
from tests.spmd.passes.triggers.programs import ANY_TYPE
from tests.spmd.passes.triggers.registry import Rng, Trigger


def operands_for_members(rng: Rng) -> HloModule:
    p = several_devices(rng)
    mode, count = exchanging_ids(p)
    groups = equal_groups(p, count)
    kind, dims = p.element_type(ANY_TYPE), p.dims(0, 3, most=64)
    operands = [p.value(kind, dims) for _ in range(groups.group_size(count))]
    exchanged = p.b.create(Opcode.ALL_TO_ALL, operands, meeting(p, mode, groups))
    return p.module(*[p.b.get_tuple_element(exchanged, i) for i in range(len(operands))])


@pytest.mark.parametrize("seed", range(30))
def test_operands_become_an_array(seed: int) -> None:
    check_trigger(
        Trigger("all-to-all-decomposer", operands_for_members, options="to-arrays=true"), seed
    )
