"""Tests of the latency-hiding scheduler on small programs: what it hides, what it must not do, and what limits cost."""

from __future__ import annotations

import pytest

from collectives.cost.profiled import Durations, ProfiledEstimator
from collectives.passes.async_creation import AsyncCreation
from collectives.schedule.latency_hiding import LatencyOptions, schedule_for_latency
from collectives.schedule.latency_report import LatencyReport
from collectives.schedule.overlap_limits import OverlapLimits
from collectives.schedule.phases import is_done, is_start
from collectives.schedule.scheduling_groups import ScheduleError
from spmd.analysis.live_bytes import peak_bytes
from spmd.hlo import HloModule
from spmd.machine.named import machine_named
from spmd.text.parser import parse_module
from tests.collectives.schedule.table_estimator import TableEstimator
from tests.collectives.schedule.window_checker import check_windows

SUM = """
sum {
  p0 = f32[] parameter(0)
  p1 = f32[] parameter(1)
  ROOT s = f32[] add(p0, p1)
}
"""
ALL = "use_global_device_ids=true, replica_groups={{0,1,2,3}}"
ROWS = "use_global_device_ids=true, replica_groups={{0,1},{2,3}}"
COLUMNS = "use_global_device_ids=true, replica_groups={{0,2},{1,3}}"


def scheduled(body: str, inside: str = "", header: str = "") -> HloModule:
    """Return a scheduled module for four devices, with its collectives split into start and done."""
    module = parse_module(
        f"HloModule m, is_scheduled=true, num_partitions=4{header}\n{SUM}\n{inside}\nENTRY main {{\n{body}\n}}\n"
    )
    AsyncCreation().run(module)
    return module


def order(module: HloModule) -> list[str]:
    return [x.name for x in module.entry.instructions if x.opcode.value != "parameter"]


def hide(
    module: HloModule,
    seconds: dict[str, float],
    options: LatencyOptions | None = None,
    exchanges: dict[str, str] | None = None,
    latencies: dict[str, float] | None = None,
) -> LatencyReport:
    estimator = TableEstimator(seconds, exchanges=exchanges or {}, latencies=latencies or {})
    report = schedule_for_latency(module, estimator, options)
    check_windows(module, apart=options is None or options.limits.apart)
    return report


CHAIN = f"""
  x = f32[8] parameter(0)
  w = f32[2] parameter(1)
  a = f32[8] negate(x)
  b = f32[8] negate(a)
  g = f32[8] all-gather(w), channel_id=1, {ALL}, dimensions={{0}}
  ROOT c = f32[8] add(b, g)
"""


def test_a_gather_starts_just_before_it_would_be_late() -> None:
    module = scheduled(CHAIN)
    report = hide(module, {"g": 1.0})
    assert order(module) == ["a", "g-start", "b", "g-done", "c"]
    assert (report.seconds_before, report.seconds, report.exposed) == (4.0, 3.0, 0.0)


def test_what_cannot_be_hidden_is_exposed() -> None:
    module = scheduled(CHAIN)
    report = hide(module, {"g": 5.0})
    assert order(module)[0] == "g-start"
    assert report.exposed == pytest.approx(3.0)
    (row,) = report.collectives
    assert (row.name, row.exposed) == ("g-start", 3)


def test_independent_work_moves_into_the_window() -> None:
    """The gradient of the weights, which comes first in the program, moves behind the start."""
    module = scheduled(
        f"""
  x = f32[8] parameter(0)
  weights = f32[8] negate(x)
  inputs = f32[8] abs(x)
  r = f32[8] all-reduce(inputs), channel_id=1, {ALL}, to_apply=sum
  ROOT t = f32[8] add(r, weights)
"""
    )
    hide(module, {"r": 1.0})
    assert order(module) == ["inputs", "r-start", "weights", "r-done", "t"]


def test_a_profile_decides() -> None:
    """Measured durations count by the names in the program; the estimate counts where nothing was measured."""
    module = scheduled(CHAIN)
    estimator = ProfiledEstimator(Durations({"b": 0.25}, {"g-start": 0.25}), TableEstimator())
    schedule_for_latency(module, estimator)
    assert order(module) == ["a", "g-start", "b", "g-done", "c"]
    module = scheduled(CHAIN)
    estimator = ProfiledEstimator(Durations({"b": 0.25}, {"g-start": 0.5}), TableEstimator())
    schedule_for_latency(module, estimator)
    assert order(module) == ["g-start", "a", "b", "g-done", "c"]


def test_an_order_that_hides_all_stays() -> None:
    module = scheduled(CHAIN)
    hide(module, {"g": 1.0})
    before = str(module)
    report = hide(module, {"g": 1.0})
    assert str(module) == before
    assert not report.changed


TWO = f"""
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  one = f32[8] all-reduce(x), channel_id=1, GROUPS, to_apply=sum
  other = f32[8] all-reduce(y), channel_id=2, {COLUMNS}, to_apply=sum
  a = f32[8] negate(x)
  s = f32[8] add(one, other)
  ROOT t = f32[8] add(s, a)
"""


@pytest.mark.parametrize(("groups", "together"), [(ROWS, True), (ALL, False), (COLUMNS, False)])
def test_groups_that_share_two_devices_are_never_in_flight_together(
    groups: str, together: bool
) -> None:
    module = scheduled(TWO.replace("GROUPS", groups))
    limits = OverlapLimits(per_exchange=2)
    report = hide(
        module, {"one": 1.0, "other": 1.0}, LatencyOptions(limits), exchanges={"other": "second"}
    )
    assert (most_in_flight(module) == 2) is together
    assert report.seconds == (3.0 if together else 4.0)


@pytest.mark.parametrize(("per_exchange", "together"), [(1, 1), (2, 2)])
def test_messages_of_the_same_devices_may_be_in_flight_together(
    per_exchange: int, together: int
) -> None:
    """The second of latency of each collective passes at the same time as the other one's."""
    module = scheduled(TWO.replace("GROUPS", COLUMNS))
    options = LatencyOptions(OverlapLimits(per_exchange=per_exchange, apart=False))
    seconds, latencies = {"one": 2.0, "other": 2.0}, {"one": 1.0, "other": 1.0}
    report = hide(module, seconds, options, latencies=latencies)
    assert most_in_flight(module) == together
    assert report.seconds == (6.0 if together == 1 else 5.0)


def test_limits_by_kind_of_machine() -> None:
    """Kernels of collectives occupy a GPU until their peers come; messages occupy nothing."""
    assert OverlapLimits.on(machine_named("dgx-h100")) == OverlapLimits(per_exchange=1, apart=True)
    assert OverlapLimits.on(machine_named("tcp-cluster")) == OverlapLimits(2, apart=False)


def test_an_order_with_such_an_overlap_is_not_kept() -> None:
    """An order with an overlap that is not allowed, such as another compiler's, is not kept although it is quicker."""
    starts = TWO.replace("GROUPS", COLUMNS)
    module = scheduled(starts)
    by_name = {x.name: x for x in module.entry.instructions}
    names = ["x", "y", "one-start", "other-start", "a", "one-done", "other-done", "s.1", "t"]
    module.entry.set_order(by_name[name] for name in names)
    seconds = {"one": 1.0, "other": 1.0, "a": 2.0}
    report = hide(module, seconds, exchanges={"other": "second"})
    assert most_in_flight(module) == 1
    assert report.seconds >= report.seconds_before


def most_in_flight(module: HloModule) -> int:
    most = now = 0
    for x in module.entry.instructions:
        now += is_start(x) - is_done(x)
        most = max(most, now)
    return most


@pytest.mark.parametrize(
    "limits",
    [
        OverlapLimits(per_exchange=1),
        OverlapLimits(per_exchange=2, in_flight=1),
    ],
)
def test_limits_of_what_is_in_flight(limits: OverlapLimits) -> None:
    module = scheduled(TWO.replace("GROUPS", ROWS))
    hide(module, {"one": 1.0, "other": 1.0}, LatencyOptions(limits))
    assert most_in_flight(module) == 1


LOOP = """
body {
  t = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  v = f32[8] get-tuple-element(t), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  COLLECTIVE
  ROOT u = (s32[], f32[8]) tuple(j, n)
}
condition {
  t = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
"""
AROUND = f"""
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  zero = s32[] constant(0)
  state = (s32[], f32[8]) tuple(zero, x)
  r = f32[8] all-reduce(y), channel_id=1, {ROWS}, to_apply=sum
  loop = (s32[], f32[8]) while(state), condition=condition, body=body
  z = f32[8] get-tuple-element(loop), index=1
  ROOT t = f32[8] add(z, r)
"""


@pytest.mark.parametrize(
    ("collective", "around"),
    [
        ("n = f32[8] negate(v)", True),
        (f"n = f32[8] all-reduce(v), channel_id=2, {ROWS}, to_apply=sum", False),
    ],
)
def test_a_window_spans_a_loop_that_does_not_meet_its_devices(
    collective: str, around: bool
) -> None:
    module = scheduled(AROUND, LOOP.replace("COLLECTIVE", collective))
    report = hide(module, {"r": 2.0})
    names = order(module)
    spans = names.index("r-start") < names.index("loop") < names.index("r-done")
    assert spans is around
    # Three trips of an addition, a comparison and a negation, and the comparison that ends them; the inner reduction is
    # hidden behind the addition.
    assert report.seconds == (3 * 3.0 + 1.0 + 1.0 if around else 3 * 2.0 + 1.0 + 2.0 + 1.0)


def test_bodies_of_loops_are_scheduled() -> None:
    inside = LOOP.replace(
        "COLLECTIVE", f"n = f32[8] all-reduce(v), channel_id=2, {ROWS}, to_apply=sum"
    )
    module = scheduled(AROUND.replace("negate", "abs"), inside)
    report = hide(module, {"n": 1.0, "r": 0.0})
    row = next(one for one in report.collectives if one.name == "n-start")
    assert (row.times, row.exposed) == (3, 0.0)


def test_control_edges_are_kept() -> None:
    module = scheduled(CHAIN.replace("dimensions={0}", "dimensions={0}, control-predecessors={a}"))
    hide(module, {"g": 5.0})
    assert order(module) == ["a", "g-start", "b", "g-done", "c"]


GROUP = 'frontend_attributes={_scheduling_group_id="7"}'


def test_a_scheduling_group_stays_together() -> None:
    """Without the group a and b would be in the window; with it, only the annotated work is."""
    text = CHAIN.replace("dimensions={0}", f"dimensions={{0}}, {GROUP}")
    text = text.replace("negate(x)", f"negate(x), {GROUP}")
    module = scheduled(text)
    report = hide(module, {"g": 5.0})
    assert order(module) == ["g-start", "a", "g-done", "b", "c"]
    assert report.exposed == 4.0


def test_a_scheduling_group_that_cannot_stay_together() -> None:
    text = CHAIN.replace("negate(x)", f"negate(x), {GROUP}").replace(
        "add(b, g)", f"add(b, g), {GROUP}"
    )
    with pytest.raises(ScheduleError, match="group 7 of main cannot stay together: b needs"):
        hide(scheduled(text), {"g": 5.0})


def test_only_schedules_are_scheduled() -> None:
    module = parse_module("HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }")
    with pytest.raises(ScheduleError, match="m is logical, expected a schedule"):
        schedule_for_latency(module, TableEstimator())


# ---- memory
def _layers(count: int) -> HloModule:
    """Return a chain of products, each with weights that are gathered for it."""
    lines = ["x0 = f32[64] parameter(0)"]
    for n in range(count):
        lines += [
            f"w{n} = f32[16] parameter({n + 1})",
            f"g{n} = f32[64] all-gather(w{n}), channel_id={n + 1}, {ALL}, dimensions={{0}}",
            f"x{n + 1} = f32[64] multiply(x{n}, g{n})",
        ]
    lines[-1] = "ROOT " + lines[-1]
    return scheduled("\n".join(lines))


def test_the_memory_limit_is_never_exceeded_and_says_what_it_costs() -> None:
    """On slow links all gathers start far ahead where there is no limit; a larger limit lets more of them do so."""
    free = _layers(6)
    before = peak_bytes(free)
    estimator = TableEstimator({f"g{n}": 0.6 if n else 0.1 for n in range(6)})
    unlimited = schedule_for_latency(free, estimator)
    assert unlimited.peak > before
    seen = []
    for limit in range(before, unlimited.peak + 1, 64):
        module = _layers(6)
        report = schedule_for_latency(module, estimator, LatencyOptions(memory_limit=limit))
        check_windows(module, limit)
        seen.append(report.seconds)
        if report.seconds > unlimited.seconds:
            lost = sum(one.limited for one in report.collectives)
            assert lost >= report.seconds - unlimited.seconds - 1e-9
    assert seen[0] > seen[-1] == unlimited.seconds
    assert sorted(seen, reverse=True) == seen


def test_an_order_above_the_limit_does_not_grow() -> None:
    module = _layers(6)
    before = peak_bytes(module)
    estimator = TableEstimator({f"g{n}": 0.6 for n in range(6)})
    schedule_for_latency(module, estimator, LatencyOptions(memory_limit=1))
    assert peak_bytes(module) <= before
