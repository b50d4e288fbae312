"""Tests of how long work takes beside transfers that occupy a device, and of which work waits for a transfer."""

from __future__ import annotations

import pytest

from collectives.passes.async_creation import AsyncCreation
from collectives.schedule.group_overlap import GroupOverlap
from collectives.schedule.list_scheduler import ListScheduler, Priorities
from collectives.schedule.overlap_limits import OverlapLimits
from collectives.schedule.phases import is_start
from collectives.schedule.schedule_graph import build_graph
from collectives.schedule.slowed_work import LoadedTransfer, end_of_work
from collectives.schedule.timeline import run_timeline
from collectives.schedule.window_costs import WindowCosts
from spmd.analysis.live_bytes import ModuleBytes
from spmd.hlo import HloInstruction, HloModule, Stage
from spmd.text.parser import parse_module
from tests.collectives.schedule.table_estimator import TableEstimator


@pytest.mark.parametrize(
    ("active_transfers", "end"),
    [
        ([], 5.0),
        ([LoadedTransfer(0.0, 9.0, 0.0)], 5.0),
        ([LoadedTransfer(0.0, 1.0, 0.5)], 5.0),
        ([LoadedTransfer(0.0, 3.0, 0.5)], 6.0),  # one second of work in the first two
        ([LoadedTransfer(0.0, 99.0, 0.5)], 9.0),
        ([LoadedTransfer(3.0, 99.0, 0.5)], 7.0),
        ([LoadedTransfer(0.0, 99.0, 0.25), LoadedTransfer(0.0, 99.0, 0.25)], 9.0),
        ([LoadedTransfer(0.0, 21.0, 1.0)], 1.0 + 20.0 + 3.0),
    ],
)
def test_end_of_work(active_transfers: list[LoadedTransfer], end: float) -> None:
    """Four seconds of work begin at 1; at least a twentieth of the device counts as left beside transfers."""
    assert end_of_work(1.0, 4.0, active_transfers) == pytest.approx(end)


#: Two halves of a batch: each one computes while the other one is sent. Only the root needs ``late``.
HALVES = """HloModule halves, num_partitions=2
ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  a = f32[8] negate(x)
  b = f32[8] negate(y)
  a_sent = f32[8] all-to-all(a), channel_id=1, replica_groups={{0,1}}, dimensions={0}
  b_sent = f32[8] all-to-all(b), channel_id=2, replica_groups={{0,1}}, dimensions={0}
  a_next = f32[8] exponential(a_sent)
  b_next = f32[8] exponential(b_sent)
  a_back = f32[8] all-to-all(a_next), channel_id=3, replica_groups={{0,1}}, dimensions={0}
  b_back = f32[8] all-to-all(b_next), channel_id=4, replica_groups={{0,1}}, dimensions={0}
  late = f32[8] cosine(x)
  ROOT r = (f32[8], f32[8], f32[8]) tuple(a_back, b_back, late)
}
"""


def halves() -> HloModule:
    module = parse_module(HALVES)
    module.stage = Stage.SCHEDULED
    AsyncCreation().run(module)
    return module


def costs_of(module: HloModule, busy: float = 0.0) -> WindowCosts:
    estimator = TableEstimator({"a": 1.0, "b": 1.0}, otherwise=lambda _: 2.0)
    starts = [x for x in module.entry.instructions if is_start(x)]
    ways = {link.exchange for x in starts for link in estimator.collective(x).links}
    return WindowCosts(estimator, GroupOverlap(module), dict.fromkeys(ways, busy))


def order_of(module: HloModule, costs: WindowCosts, *, patient: bool) -> list[HloInstruction]:
    """Return the order of a list scheduler that starts at the beginning and prefers the longest path."""
    buffers = ModuleBytes.of(module).buffers[module.entry]
    graph = build_graph(module.entry, costs, buffers)
    paths = graph.paths(backward=False)
    nodes = sorted(range(len(graph)), key=lambda node: (-paths[node], node))
    ahead = [0] * len(graph)
    for place, node in enumerate(nodes):
        ahead[node] = place
    priorities = Priorities(ahead, ahead, ahead, patient=patient)
    made = ListScheduler(
        graph, priorities, costs.group_overlap, OverlapLimits(), backward=False
    ).run()
    assert made is not None
    return graph.instructions(made)


def test_the_timeline_slows_work_beside_transfers() -> None:
    """Three times a half is computed beside a transfer of the same length, and ``late`` beside the last one."""
    module = halves()
    order = order_of(module, costs_of(module), patient=True)
    alone = run_timeline(order, costs_of(module))
    slowed = run_timeline(order, costs_of(module, 0.5))
    assert alone.seconds == pytest.approx(9.0)
    assert slowed.seconds > 1.2 * alone.seconds


def test_work_that_anybody_can_wait_for_does_not_keep_the_next_collective_waiting() -> None:
    """``late`` takes longer than the rest of the first transfer; begun beside it, it leaves the link idle."""
    module = halves()
    costs = costs_of(module)
    patient, hasty = (
        run_timeline(order_of(module, costs, patient=each), costs).seconds for each in (True, False)
    )
    assert patient == pytest.approx(9.0)  # one half, and four transfers
    assert hasty > patient


def test_all_is_done_where_nothing_else_can_be() -> None:
    """All instructions are scheduled: where only work is left, none of it is put off."""
    module = halves()
    assert len(order_of(module, costs_of(module), patient=True)) == len(module.entry.instructions)
