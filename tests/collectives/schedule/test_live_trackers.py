"""Bytes counted while an order is made, from either end, are those of the finished order; what may run ahead of it."""

from __future__ import annotations

import pytest

from collectives.passes.async_creation import AsyncCreation
from collectives.schedule.group_overlap import GroupOverlap
from collectives.schedule.headroom import Headroom, needs_by_turn
from collectives.schedule.live_trackers import BackwardTracker, ForwardTracker
from collectives.schedule.schedule_graph import build_graph
from collectives.schedule.window_costs import WindowCosts
from spmd.analysis.live_bytes import ModuleBytes, live_bytes
from spmd.hlo import HloComputation, HloModule
from spmd.text.parser import parse_module
from tests.collectives.schedule.random_programs import random_program
from tests.collectives.schedule.table_estimator import TableEstimator


@pytest.mark.parametrize("seed", range(30))
def test_both_directions_count_alike(seed: int) -> None:
    module = random_program(seed, devices=4, steps=20)
    AsyncCreation().run(module)
    known = ModuleBytes.of(module)
    for computation, buffers in known.buffers.items():
        order = computation.instructions
        inner, persistent = known.inner_of(computation), known.persistent(computation)
        wanted = live_bytes(buffers, order, inner, persistent)
        forward, backward = (
            make(buffers, inner, persistent) for make in (ForwardTracker, BackwardTracker)
        )
        ahead, behind = [], []
        for x in order:
            ahead.append(forward.need(x))
            forward.schedule(x)
        for x in reversed(order):
            behind.append(backward.need(x))
            backward.schedule(x)
        assert ahead == wanted
        assert behind[::-1] == wanted


TEXT = """HloModule m, is_scheduled=true
ENTRY e {
  x = f32[4] parameter(0)
  a = f32[8] concatenate(x, x), dimensions={0}
  b = f32[4] slice(a), slice={[0:4]}
  c = f32[16] concatenate(x, x, x, x), dimensions={0}
  d = f32[4] slice(c), slice={[0:4]}
  ROOT r = (f32[4], f32[4]) tuple(b, d)
}
"""


def headroom(module: HloModule, limit: int, *, backward: bool) -> Headroom:
    known = ModuleBytes.of(module)
    entry: HloComputation = module.entry
    costs = WindowCosts(TableEstimator(), GroupOverlap(module))
    graph = build_graph(entry, costs, known.buffers[entry])
    count = len(graph)
    key = list(range(count))[::-1] if backward else list(range(count))
    make = BackwardTracker if backward else ForwardTracker
    tracker = make(known.buffers[entry], {}, known.persistent(entry))
    needs = needs_by_turn(graph, key, entry.instructions, known.look(entry))
    return Headroom(graph, key, known.buffers[entry], tracker, needs, limit)


@pytest.mark.parametrize(("limit", "allowed"), [(127, False), (128, True)])
def test_what_runs_ahead_leaves_room_for_the_rest(limit: int, allowed: bool) -> None:
    """c ahead of a: 64 bytes more beside x and a (48), and beside x, a and b (64)."""
    room = headroom(parse_module(TEXT), limit, backward=False)
    room.advance(0, 0)
    assert room.allows(1, 1)
    assert room.allows(3, 1) is allowed


@pytest.mark.parametrize(("limit", "allowed"), [(127, False), (128, True)])
def test_from_the_end_what_is_late_holds_its_operands(limit: int, allowed: bool) -> None:
    """b behind d: a's 32 bytes beside x, c and d (96), instead of b's 16."""
    room = headroom(parse_module(TEXT), limit, backward=True)
    room.advance(5, 0)
    assert room.allows(4, 1)
    assert room.allows(2, 1) is allowed
