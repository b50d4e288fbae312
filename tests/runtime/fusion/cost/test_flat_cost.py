"""Flat kernels cost what the walk along index maps says."""

from __future__ import annotations

import pytest

from runtime.fusion.cost.cost_model import CostModel
from runtime.fusion.cost.flat_cost import flat_cost
from runtime.fusion.cost.loop_cost import LoopSpaces
from spmd.machine.named import machine_named
from tests.runtime.fusion.test_kernel_kinds import FLAT, entry, kind_of


@pytest.mark.parametrize("dims", ["4,6", "4,1", "1,6", "1,1", "4096,300"])
def test_as_of_index_maps(dims: str) -> None:
    kind = kind_of(entry(FLAT.replace("4,6", dims)))
    assert kind.flat
    prices = CostModel(machine_named())
    flat = flat_cost(kind.roots, kind.members, kind.inputs, prices)
    walked = LoopSpaces(prices).cost(kind.roots, kind.order, kind.inputs)
    for name in flat.__slots__:
        assert getattr(flat, name) == pytest.approx(getattr(walked, name), rel=1e-12), name
