"""Rolls along sharded dimensions: what is matched, what is sent, and that it is right."""

from __future__ import annotations

import numpy as np
import pytest

from partitioner.ops.roll import match_roll
from partitioner.spmd_partitioner import partition_module
from spmd.analysis.cost import module_cost
from spmd.hlo import HloModule
from spmd.text.parser import parse_module
from tests.differential.equivalence import check_equivalence


def rolled(size: int, shift: int, devices: int) -> HloModule:
    return parse_module(
        f"""ENTRY e {{
  x = f32[{size},3] parameter(0), sharding={{devices=[{devices},1]<=[{devices}]}}
  end = f32[{shift},3] slice(x), slice={{[{size - shift}:{size}], [0:3]}}
  start = f32[{size - shift},3] slice(x), slice={{[0:{size - shift}], [0:3]}}
  ROOT r = f32[{size},3] concatenate(end, start), dimensions={{0}}, sharding={{devices=[{devices},1]<=[{devices}]}}
}}"""
    )


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("shift", [1, 2, 3, 5, 11])
def test_every_shift_is_right(devices: int, shift: int) -> None:
    x = np.arange(36, dtype=np.float32).reshape(12, 3)
    check_equivalence(rolled(12, shift, devices), devices, [x])


def test_only_what_crosses_a_tile_edge_is_sent() -> None:
    cost = module_cost(partition_module(rolled(16, 1, 4), 4))
    assert list(cost.collectives) == ["collective-permute"]
    assert cost.wire_bytes == 3 * 4


def test_a_shift_by_a_whole_tile_is_one_permute() -> None:
    cost = module_cost(partition_module(rolled(16, 4, 4), 4))
    assert cost.collectives["collective-permute"].count == 1


def test_an_uneven_dimension_takes_the_other_way_and_is_right() -> None:
    x = np.arange(21, dtype=np.float32).reshape(7, 3)
    check_equivalence(rolled(7, 2, 4), 4, [x])


@pytest.mark.parametrize(
    "parts",
    [
        "end = f32[2,3] slice(x), slice={[5:7], [0:3]} start = f32[6,3] slice(x), slice={[0:6], [0:3]}",
        "end = f32[2,3] slice(x), slice={[6:8], [0:3]} start = f32[6,3] slice(y), slice={[0:6], [0:3]}",
        "start = f32[6,3] slice(x), slice={[0:6], [0:3]} end = f32[2,3] slice(x), slice={[0:2], [0:3]}",
    ],
)
def test_other_pairs_of_slices_are_no_roll(parts: str) -> None:
    module = parse_module(
        f"""ENTRY e {{ x = f32[8,3] parameter(0) y = f32[8,3] parameter(1) {parts}
  ROOT r = f32[8,3] concatenate(end, start), dimensions={{0}} }}"""
    )
    assert match_roll(module.entry.root) is None
