"""Simulated steps whose times can be told by hand."""

from __future__ import annotations

import dataclasses

import pytest

from collectives.cost.estimator import CollectiveTime, LinkUse
from collectives.simulate.device_classes import classify_devices
from collectives.simulate.engine import Engine
from collectives.simulate.program import program_of
from collectives.simulate.reasons import Cause
from collectives.simulate.result import CollectiveResult, Simulation
from collectives.simulate.simulate import SimulationOptions, simulate
from spmd.errors import ShapeError, UnsupportedError
from spmd.text.parser import parse_module
from tests.collectives.simulate.scheduled import (
    Scheduled,
    TableEstimator,
    begin,
    end,
    loop,
    permute,
    ring,
    scheduled,
    work,
)


def run(made: Scheduled, **options: object) -> Simulation:
    return simulate(made.module, [made.estimator], SimulationOptions(**options))  # type: ignore[arg-type]


def one(found: Simulation, name: str) -> CollectiveResult:
    return next(collective for collective in found.collectives if collective.name == name)


def cause(found: Simulation, name: str) -> dict[Cause, float]:
    return dict(one(found, name).causes)


def add_up(found: Simulation) -> float:
    return found.compute + found.slowed + found.exposed


# ---- two resources
def test_communication_longer_than_the_work_beside_it() -> None:
    found = run(
        scheduled([work("a", 3.0), begin("g", 5.0), work("b", 2.0), end("g"), work("c", 1.0)])
    )
    assert found.seconds == add_up(found) == 9.0
    assert (found.compute, found.exposed, found.communication) == (6.0, 3.0, 5.0)
    assert cause(found, "g") == {Cause.DEPENDENCY: 3.0}
    assert one(found, "g").why == (
        "dependency: 2 s of work can overlap its transfer of 5 s; a produces its operand, c uses its result"
    )


def test_communication_hidden_behind_longer_work() -> None:
    found = run(scheduled([begin("g", 2.0), work("b", 5.0), end("g")]))
    assert (found.seconds, found.exposed) == (5.0, 0.0)
    assert one(found, "g").why == ""
    link = found.resources[-1]
    assert (link.name, link.busy, link.hideable, link.hidden, link.share) == ("wire", 2, 2, 2, 1)


def test_blocking_with_work_that_could_hide_it() -> None:
    module = parse_module(_BESIDE)
    estimator = TableEstimator({"a": 4.0}, {"g": CollectiveTime(3.0, "ring", ())})
    found = simulate(module, [estimator])
    assert (found.seconds, found.bound.seconds, found.bound.what) == (7.0, 4.0, "compute")
    assert cause(found, "g") == {Cause.BLOCKING: 3.0}


def test_split_with_work_that_stands_elsewhere() -> None:
    text = _BESIDE.replace("g = f32[8] all-reduce", "s = f32[8] all-reduce-start").replace(
        "a = f32", "g = f32[8] all-reduce-done(s)\n  a = f32"
    )
    estimator = TableEstimator({"a": 4.0}, {"s": CollectiveTime(3.0, "ring", ())})
    assert cause(simulate(parse_module(text), [estimator]), "s") == {Cause.ORDER: 3.0}
    found = simulate(parse_module(text), [estimator], SimulationOptions(limited={"s": 2.0}))
    assert cause(found, "s") == {Cause.MEMORY: 2.0, Cause.ORDER: 1.0}
    assert one(found, "s").why == (
        "memory limit: the scheduler had too little memory to overlap it, although 4 s of work can overlap its "
        "transfer of 3 s"
    )


def test_more_to_send_than_to_compute() -> None:
    """Either of g and h could be beside a, but not both."""
    time = CollectiveTime(3.0, "ring", (LinkUse("wire", 1.0, 3.0),))
    found = simulate(parse_module(_TWO), [TableEstimator({"a": 4.0}, {"g": time, "h": time})])
    assert found.seconds == 7.0
    assert cause(found, "g") == {Cause.LINKS: 3.0}
    assert (
        one(found, "g").why == "links: its computation keeps wire busy for 6 s and has 4 s of work"
    )


# ---- contention
def test_two_collectives_share_a_port() -> None:
    """Both collectives have half the rate until 4 s, when the shorter one is over."""
    found = run(scheduled([begin("g", 2.0), begin("h", 5.0), work("a", 1.0), end("g"), end("h")]))
    assert found.seconds == 7.0
    assert (one(found, "g").seconds, one(found, "h").seconds) == (4.0, 7.0)
    assert cause(found, "g") == {Cause.CONTENTION: 2.0, Cause.DEPENDENCY: 1.0}
    assert one(found, "g").why == "contention: h uses wire at the same time"
    assert found.resources[-1].busy == 7.0


def test_a_third_begins_when_two_are_under_way() -> None:
    """g and h at a half until 2 s, all three at a third until g is over at 5 s, h and i at a half until 9 s."""
    lines = [begin("g", 2.0), begin("h", 4.0), work("a", 2.0), begin("i", 6.0)]
    found = run(scheduled([*lines, end("g"), end("h"), end("i")]))
    assert one(found, "g").seconds == pytest.approx(5.0)
    assert one(found, "h").seconds == pytest.approx(9.0)
    assert found.seconds == pytest.approx(12.0)


def test_links_of_different_exchanges_are_not_shared() -> None:
    lines = [begin("g", 2.0), begin("h", 5.0, exchange="far"), end("g"), end("h")]
    found = run(scheduled(lines))
    assert (found.seconds, one(found, "g").seconds, one(found, "h").seconds) == (5.0, 2.0, 5.0)


def test_what_leaves_a_port_idle_leaves_it_to_others() -> None:
    """A quarter and three quarters of the port: nobody waits for anybody."""
    lines = [begin("g", 4.0, use=0.25), begin("h", 4.0, use=0.75), end("g"), end("h")]
    assert run(scheduled(lines)).seconds == pytest.approx(4.0)


def test_collectives_take_processors_away() -> None:
    """A quarter of them for 4 s: 6 s of work take 7."""
    made = scheduled([begin("g", 4.0), work("a", 4.0), work("b", 2.0), end("g")])
    found = run(made, busy={"wire": 0.25}, timeline=True)
    assert (found.seconds, found.compute, found.slowed) == (7.0, 6.0, 1.0)
    spans = {one.name: (one.start, one.end) for one in found.slices}
    assert spans["a"] == pytest.approx((0.0, 5.0))
    assert spans["b"] == pytest.approx((5.0, 7.0))


def test_cores_that_move_all_bytes_themselves_compute_nothing_meanwhile() -> None:
    found = run(scheduled([begin("g", 4.0), work("a", 6.0), end("g")]), busy={"wire": 1.0})
    assert (found.seconds, found.slowed) == (10.0, 4.0)


# ---- devices that differ
def test_a_late_peer() -> None:
    made = scheduled([work("a", 2.0), ring("g", 1.0), work("b", 1.0)])
    slow = dataclasses.replace(made.estimator, scale=2.0)
    found = simulate(made.module, [made.estimator, slow], SimulationOptions(paces=(0, 1)))
    assert (found.device, found.seconds, found.exposed) == (1, 7.0, 1.0)
    fast = simulate(made.module, [slow, made.estimator], SimulationOptions(paces=(1, 0)))
    assert fast.device == 1
    made = scheduled([ring("f", 1.0), work("a", 2.0), ring("g", 1.0)])
    slow = dataclasses.replace(made.estimator, scale=2.0)
    found = simulate(made.module, [made.estimator, slow], SimulationOptions(paces=(0, 1)))
    assert (found.device, found.seconds, found.exposed) == (0, 6.0, 4.0)
    assert cause(found, "g") == {Cause.LATE_PEER: 2.0, Cause.DEPENDENCY: 1.0}
    assert one(found, "g").why == "late peer: device 1 is ready 2 s later"


def test_groups_wait_for_their_own_members_only() -> None:
    made = scheduled([work("a", 1.0), ring("g", 1.0, "{0,1},{2,3}"), work("b", 1.0)], devices=4)
    slow = dataclasses.replace(made.estimator, scale=5.0)
    found = simulate(made.module, [made.estimator, slow], SimulationOptions(paces=(0, 0, 0, 1)))
    assert (found.device, found.classes, found.class_size) == (3, 3, 1)
    assert found.seconds == 11.0


def test_a_permute_waits_for_neighbours() -> None:
    """0 -> 1 -> 2: device 0 is slow, which 1 waits for; 2 needs 1 alone, and 3 takes no part."""
    made = scheduled([work("a", 1.0), permute("g", 1.0, "{0,1},{1,2}")], devices=4)
    slow = dataclasses.replace(made.estimator, scale=5.0)
    program = program_of(made.module, [made.estimator, slow])
    engine = Engine(program, classify_devices(program.sites, 4, 1, paces=(1, 0, 0, 0)))
    assert engine.run() == 6.0
    assert [device.end for device in engine.devices] == [6.0, 6.0, 2.0, 1.0]


def test_a_permute_has_two_members() -> None:
    found = run(scheduled([permute("g", 1.0, "{0,1},{1,2}")], devices=3))
    assert (found.classes, [one.group_size for one in found.collectives]) == (3, [2])


# ---- loops
def test_trips_that_are_alike_are_counted() -> None:
    made = scheduled(
        [loop("l", 1000, begin("g", 4.0), work("a", 3.0), end("g"), work("b", 1.0)), work("z", 2.0)]
    )
    found = run(made, timeline=True)
    assert found.seconds == pytest.approx(5002.0, rel=1e-12)
    assert one(found, "g").executions == 1000
    assert one(found, "g").exposed == pytest.approx(1000.0)
    assert len(found.slices) < 20
    assert any("more trips" in part.name for part in found.slices)
    assert max(part.end for part in found.slices) == pytest.approx(found.seconds)


def test_what_is_under_way_from_before_a_loop() -> None:
    """The outer transfer shares the port with the first trips' ones: they are not like the others."""
    lines = [begin("o", 10.0), loop("l", 50, ring("g", 1.0), work("a", 1.0)), end("o")]
    made = scheduled(lines)
    full = run(made, extrapolated=False)
    assert run(made).seconds == pytest.approx(full.seconds, rel=1e-9)
    assert full.seconds > 100.0


def test_a_loop_without_collectives_is_one_piece_of_work() -> None:
    found = run(scheduled([loop("l", 10**9, work("a", 1e-9))]), timeline=True)
    assert found.seconds == pytest.approx(1.0)
    assert [part.name for part in found.slices] == ["l"]


def test_an_unknown_trip_count_is_said() -> None:
    made = scheduled([loop("l", 7, ring("g", 1.0))])
    text = str(made.module).replace("s32[] constant(7)", "s32[] negate(%i.l)")
    found = simulate(parse_module(text), [made.estimator])
    assert found.seconds == 1.0
    assert found.notes == ("l: its trip count is unknown; counted as one trip",)


def test_a_conditional_is_its_dearest_branch() -> None:
    estimator = TableEstimator(
        {"cheap": 1.0, "a": 1.0}, {"g": CollectiveTime(3.0, "ring", (LinkUse("wire", 1.0, 3.0),))}
    )
    found = simulate(parse_module(_BRANCHES), [estimator])
    assert (found.seconds, found.bound.path) == (4.0, 4.0)
    assert found.notes == (
        "c: the branch taken is unknown; counted as the most expensive one, dear_branch",
    )


# ---- what cannot be simulated
def test_a_module_that_is_not_scheduled() -> None:
    made = scheduled([work("a", 1.0)])
    text = str(made.module).replace("is_scheduled=true, ", "")
    with pytest.raises(UnsupportedError, match="a simulation needs a scheduled module"):
        simulate(parse_module(text), [made.estimator])


def test_groups_of_devices_that_are_not_there() -> None:
    with pytest.raises(ShapeError, match=r"ids must lie in 0\.\.1, found 3"):
        run(scheduled([ring("g", 1.0, "{0,3}")]))


_SUM = (
    "sum {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT added = f32[] add(x, y)\n}\n"
)

_BESIDE = f"""HloModule beside, is_scheduled=true, num_partitions=2
{_SUM}
ENTRY main {{
  p = f32[8] parameter(0)
  g = f32[8] all-reduce(p), channel_id=1, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=sum
  a = f32[8] negate(p)
  ROOT t = (f32[8], f32[8]) tuple(g, a)
}}
"""

_TWO = f"""HloModule two, is_scheduled=true, num_partitions=2
{_SUM}
ENTRY main {{
  p = f32[8] parameter(0)
  g = f32[8] all-reduce-start(p), channel_id=1, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=sum
  gd = f32[8] all-reduce-done(g)
  h = f32[8] all-reduce-start(p), channel_id=2, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=sum
  a = f32[8] negate(p)
  hd = f32[8] all-reduce-done(h)
  ROOT t = (f32[8], f32[8], f32[8]) tuple(gd, hd, a)
}}
"""

_BRANCHES = f"""HloModule branches, is_scheduled=true, num_partitions=2
{_SUM}
dear_branch {{
  d = f32[8] parameter(0)
  ROOT g = f32[8] all-reduce(d), channel_id=1, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=sum
}}
cheap_branch {{
  q = f32[8] parameter(0)
  ROOT cheap = f32[8] negate(q)
}}
ENTRY main {{
  p = f32[8] parameter(0)
  w = pred[] parameter(1)
  a = f32[8] negate(p)
  ROOT c = f32[8] conditional(w, a, a), true_computation=cheap_branch, false_computation=dear_branch
}}
"""
