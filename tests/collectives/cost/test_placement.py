"""Tests of where groups lie on a machine: against a count member by member, and on the shapes that programs have."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from collectives.cost.estimator import CostError
from collectives.cost.placement import Pattern, Placements, Span, place_groups, place_pairs
from spmd.device_groups import DeviceGroups
from spmd.hlo import HloModule
from spmd.machine.description import MachineDescription
from spmd.machine.exchange import Exchange
from spmd.machine.named import machine_named
from spmd.text.parser import parse_module

DGX = machine_named("dgx-h100")
NVLINK, INFINIBAND = DGX.exchanges


def spans(pattern: Pattern) -> list[tuple[str, int, int, int]]:
    return [(span.exchange.name, span.fan, span.senders, span.groups) for span in pattern.spans]


def iota(rows: int, columns: int, transposed: bool = False) -> list[list[int]]:
    if transposed:
        return [[j * rows + i for j in range(columns)] for i in range(rows)]
    return [[i * columns + j for j in range(columns)] for i in range(rows)]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (iota(16, 8), [("NVLink 4", 8, 1, 1)]),
        (iota(32, 4), [("NVLink 4", 4, 1, 1)]),
        (iota(8, 16, transposed=True), [("InfiniBand NDR", 16, 8, 8)]),
        (iota(1, 128), [("NVLink 4", 8, 1, 1), ("InfiniBand NDR", 16, 8, 1)]),
        (iota(2, 64), [("NVLink 4", 8, 1, 1), ("InfiniBand NDR", 8, 8, 1)]),
        (iota(64, 2, transposed=True), [("InfiniBand NDR", 2, 8, 8)]),
        (iota(4, 32, transposed=True), [("NVLink 4", 2, 1, 1), ("InfiniBand NDR", 16, 8, 4)]),
    ],
)
def test_groups_of_programs_on_sixteen_nodes(
    groups: list[list[int]], expected: list[tuple[str, int, int, int]]
) -> None:
    (pattern,) = place_groups(DeviceGroups.of(groups), DGX)
    assert (pattern.size, pattern.regular) == (len(groups[0]), True)
    assert spans(pattern) == expected


def test_groups_that_lie_differently_are_patterns_of_their_own() -> None:
    patterns = place_groups(DeviceGroups.of([[0, 1, 2], [6, 7, 8], [9, 10]]), DGX)
    assert sorted((one.size, one.regular, len(one.spans)) for one in patterns) == [
        (2, True, 1),
        (3, False, 2),
        (3, True, 1),
    ]


def test_groups_beyond_the_machine_are_refused() -> None:
    for groups in ([[0, 16384]], [[1, 2], [16383, 16384]]):
        with pytest.raises(CostError, match="dgx-h100 connects at most 16384 devices"):
            place_groups(DeviceGroups.of(groups), DGX)
        with pytest.raises(CostError, match="dgx-h100 connects at most 16384 devices"):
            place_pairs(np.array([*groups]), DGX)
    with pytest.raises(CostError, match="connects at most 1 devices"):
        place_groups(DeviceGroups.of([[0, 1]]), replace(DGX, exchanges=()))
    assert place_groups(DeviceGroups.of([[0], [1]]), replace(DGX, exchanges=())) == (
        Pattern(1, ()),
    )


def counted(
    groups: Sequence[Sequence[int]], machine: MachineDescription
) -> list[tuple[int, bool, list[tuple[str, int, int, int]]]]:
    """Each group's pattern, member by member."""
    found = []
    sizes = [1, *(way.devices for way in machine.exchanges)]
    for group in groups:
        used, regular = [], True
        for level, way in enumerate(machine.exchanges):
            fans = fans_of(group, sizes[level], way.devices)
            regular &= len(set(fans)) == 1
            if max(fans) == 1:
                continue
            crossing = [one for one in groups if max(fans_of(one, sizes[level], way.devices)) > 1]
            parts = {device // sizes[level] for device in group}
            in_parts = [
                [sum(d // sizes[level] == part for d in one) for one in crossing] for part in parts
            ]
            senders = max(sum(part) for part in in_parts)
            sharing = max(sum(members > 0 for members in part) for part in in_parts)
            used.append((way.name, max(fans), senders, sharing))
        found.append((len(group), regular, used))
    return found


def fans_of(group: Sequence[int], part: int, circle: int) -> list[int]:
    """Parts in each circle that the group stands in."""
    circles = {device // circle for device in group}
    return [len({d // part for d in group if d // circle == one}) for one in sorted(circles)]


def test_random_groups_as_counted_member_by_member() -> None:
    generator = random.Random(0)
    for _ in range(150):
        devices = generator.randrange(1, 60)
        inner = generator.randrange(1, 6)
        middle = inner * generator.randrange(2, 5)
        sizes = generator.choice(((60,), (inner, 60 * inner), (inner, middle, 60 * middle)))
        ways = tuple(Exchange(f"E{n}", size, 1e9, 1e-6) for n, size in enumerate(sizes))
        machine = replace(DGX, exchanges=ways)
        ids = generator.sample(range(devices), generator.randrange(1, devices + 1))
        cuts = sorted(generator.sample(range(1, len(ids)), generator.randrange(0, len(ids))))
        groups = [ids[i:j] for i, j in pairwise((0, *cuts, len(ids)))]
        patterns = place_groups(DeviceGroups.of(groups), machine)
        found = [(one.size, one.regular, spans(one)) for one in patterns]
        expected = counted(groups, machine)
        assert all(one in expected for one in found)
        assert all(one in found for one in expected)
        assert len(set(patterns)) == len(patterns)


def test_pairs_share_what_leaves_and_enters_a_node() -> None:
    ring = [(i, (i + 1) % 16) for i in range(16)]
    assert [spans(pattern) for pattern in place_pairs(np.array(ring), DGX)] == [
        [("NVLink 4", 2, 1, 1)],
        [("InfiniBand NDR", 2, 1, 1)],
    ]
    shifted = place_pairs(np.array([(i, (i + 8) % 16) for i in range(16)]), DGX)
    assert [spans(pattern) for pattern in shifted] == [[("InfiniBand NDR", 2, 8, 8)]]
    assert place_pairs(np.array([(3, 3)]), DGX) == ()


ALL_REDUCE = """
HloModule m, num_partitions={n}
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY e {{
  x = f32[8] parameter(0)
  y = f32[8] all-reduce(x), channel_id=1, replica_groups={groups}, use_global_device_ids=true, to_apply=add
  z = f32[8] all-reduce(y), channel_id=2, replica_groups={groups}, use_global_device_ids=true, to_apply=add
  ROOT p = f32[8] collective-permute(z), channel_id=3, source_target_pairs={{{{0,1}},{{1,0}}}}
}}
"""


def module(n: int, groups: str) -> HloModule:
    return parse_module(ALL_REDUCE.format(n=n, groups=groups))


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("[2,8]<=[16]", [("NVLink 4", 8, 1, 1)]),
        ("[8,2]<=[2,8]T(1,0)", [("InfiniBand NDR", 2, 8, 8)]),
        ("{{0,8},{1,9},{2,10}}", [("InfiniBand NDR", 2, 3, 3)]),
        ("mesh['x'=2,'y'=8] {'x'}", [("InfiniBand NDR", 2, 8, 8)]),
        ("{}", [("NVLink 4", 8, 1, 1), ("InfiniBand NDR", 2, 8, 1)]),
    ],
)
def test_every_form_of_replica_groups(
    groups: str, expected: list[tuple[str, int, int, int]]
) -> None:
    _, y, z, permute = module(16, groups).entry.instructions
    placements = Placements(DGX, 16)
    (pattern,) = placements.of(y)
    assert spans(pattern) == expected
    assert placements.of(z) is placements.of(y)
    (moved,) = placements.of(permute)
    assert moved == Pattern(2, (Span(NVLINK, 2, 1, 1, narrowest=True),))


def test_sixteen_thousand_devices_are_cheap() -> None:
    _, y, *_ = module(16384, "[64,256]<=[256,64]T(1,0)").entry.instructions
    begun = time.process_time()
    (pattern,) = Placements(DGX, 16384).of(y)
    assert time.process_time() - begun < 1.0
    assert spans(pattern) == [("InfiniBand NDR", 256, 8, 8)]
