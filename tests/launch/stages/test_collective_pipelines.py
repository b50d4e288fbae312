"""Tests of the groups of passes on collectives that a compilation has."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from collectives.passes.async_to_sync import BlockingAgain
from collectives.passes.latency_hiding_scheduler import LatencyHidingScheduler
from collectives.schedule.latency_report import LatencyReport
from collectives.schedule.overlap_limits import OverlapLimits
from collectives.schedule.phases import is_start
from launch.collective_groups import COLLECTIVE_GROUPS
from launch.options import CompileOptions
from launch.pipeline import compile_module, stages
from launch.stages.collective_pipelines import HidingNotes, on_optimized, on_scheduled
from runtime.saved import save_bytes
from runtime.saved_program import load_bytes
from spmd import parse
from spmd.hlo import Opcode
from spmd.machine.named import machine_named
from spmd.machine.reader import MachineError
from spmd.passes.options import PassOptionError, parse_passes

OVERLAPPING = CompileOptions(machine=machine_named("dgx-h100"))


def groups(options: CompileOptions) -> tuple[str, ...]:
    """Return the groups that have pipelines, in their order."""
    return tuple(dict.fromkeys(x.name for x in (*on_optimized(options), *on_scheduled(options))))


def test_a_machine_that_computes_while_bytes_move_has_all_of_them() -> None:
    assert groups(OVERLAPPING) == COLLECTIVE_GROUPS


def test_another_machine_has_what_makes_less_to_be_sent() -> None:
    busy = tuple(replace(way, busy=1.0) for way in OVERLAPPING.machine.exchanges)
    machine = replace(OVERLAPPING.machine, name="busy", exchanges=busy)
    assert groups(CompileOptions(machine=machine)) == (
        "collective-simplification",
        "collective-combining",
    )


@pytest.mark.parametrize("name", COLLECTIVE_GROUPS)
def test_each_group_can_be_left_out(name: str) -> None:
    left = groups(replace(OVERLAPPING, without=(name,)))
    assert left == tuple(x for x in COLLECTIVE_GROUPS if x != name)


def test_passes_are_asked_about_the_machine_of_the_options() -> None:
    steps = [s for x in (*on_optimized(OVERLAPPING), *on_scheduled(OVERLAPPING)) for s in x.passes]
    described = {s.machine for s in steps if hasattr(s, "machine")}
    assert described == {OVERLAPPING.machine}


def test_collectives_that_could_be_hidden_are_joined_for_a_latency_alone() -> None:
    """Latency is a sixteenth of the limit's time on the slowest link that a device can compute beside."""
    cluster = machine_named("tcp-cluster")
    combining = on_optimized(CompileOptions(machine=cluster))[-1]
    way = cluster.exchanges[1]
    most = int(16 * way.latency * way.bandwidth * way.attained)
    assert {step.max_bytes for step in combining.passes} == {most, 1 << 16}
    same = on_optimized(CompileOptions())[-1].passes
    assert max(step.max_bytes for step in same) == 64 << 20


SUMS = """
HloModule sums, num_partitions=2, entry_computation_layout={(f32[64,64], f32[64,64])->(f32[64,64], f32[64,64])}
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY main {
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  sum = f32[64,64] all-reduce(x), channel_id=1, use_global_device_ids=true, replica_groups={{0,1}}, to_apply=add
  product = f32[64,64] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[64,64], f32[64,64]) tuple(sum, product)
}
"""


def test_a_compilation_says_what_its_scheduler_said() -> None:
    *_, (_, compilation) = stages(parse(SUMS), None, OVERLAPPING)
    assert compilation.machine is OVERLAPPING.machine
    assert compilation.hiding.report is not None
    assert compilation.overlap is not None
    starts = [x.name for x in compilation.module.entry.instructions if is_start(x)]
    assert [one.name for one in compilation.overlap.collectives] == starts != []


def test_nothing_is_said_where_nothing_is_hidden() -> None:
    *_, (_, compilation) = stages(parse(SUMS), None, CompileOptions())
    assert (compilation.hiding.report, compilation.overlap) == (None, None)


def test_an_executable_keeps_what_the_scheduler_said() -> None:
    executable = compile_module(parse(SUMS), None, OVERLAPPING)
    assert executable.overlap is not None
    assert load_bytes(save_bytes(executable)).overlap == executable.overlap


def test_measured_times_reach_those_who_order() -> None:
    measured = (("dot.1", 0.5),)
    (pipeline,) = on_scheduled(replace(OVERLAPPING, durations=measured))
    assert [getattr(step, "durations", None) for step in pipeline.passes] == [
        None,
        measured,
        measured,
    ]
    with pytest.raises(PassOptionError, match="has no option 'durations'"):
        parse_passes("latency-hiding-scheduler{durations=x}")


def test_notes_of_passes_are_collected() -> None:
    """The scheduler's report, and the collectives that block again, come with the applications of their passes."""
    limits = OverlapLimits.on(OVERLAPPING.machine)
    report = LatencyReport(2.0, 1.0, 1.0, (), (), 0, 0, limits)
    notes = HidingNotes()
    notes.record(("a note of another pass", report, BlockingAgain({"g-start": "g"})))
    assert notes.report is report
    assert notes.blocking == {"g-start": "g"}


def test_a_machine_in_a_pipelines_text_is_named() -> None:
    machine = replace(OVERLAPPING.machine, name="mine", units=3)
    (order,) = parse_passes("latency-hiding-scheduler{machine=mine}", (machine,))
    assert isinstance(order, LatencyHidingScheduler)
    assert order.machine is machine
    assert str(order) == "latency-hiding-scheduler{machine=mine}"
    with pytest.raises(MachineError, match="no machine is named 'mine'"):
        parse_passes("latency-hiding-scheduler{machine=mine}")


#: Each trip gathers the weights of one of two layers and keeps its input, which the trips of a second loop read.
LAYERS = """
HloModule layers, num_partitions=2, entry_computation_layout={(f32[64,64], f32[2,32,64])->(f32[64,64], f32[64,64])}
condition {
  s.1 = (s32[], f32[64,64], f32[2,32,64], f32[TRIPS,64,64]) parameter(0)
  i.1 = s32[] get-tuple-element(s.1), index=0
  n.1 = s32[] constant(TRIPS)
  ROOT less.1 = pred[] compare(i.1, n.1), direction=LT
}
forward {
  s = (s32[], f32[64,64], f32[2,32,64], f32[TRIPS,64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64,64] get-tuple-element(s), index=1
  w = f32[2,32,64] get-tuple-element(s), index=2
  kept = f32[TRIPS,64,64] get-tuple-element(s), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  begun = f32[1,64,64] reshape(x)
  keeps = f32[TRIPS,64,64] dynamic-update-slice(kept, begun, i, zero, zero)
  part = f32[1,32,64] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={1,32,64}
  own = f32[32,64] reshape(part)
  layer = f32[64,64] all-gather(own), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
  y = f32[64,64] dot(x, layer), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[64,64] tanh(y)
  ROOT r = (s32[], f32[64,64], f32[2,32,64], f32[TRIPS,64,64]) tuple(next, z, w, keeps)
}
condition.2 {
  s.3 = (s32[], f32[64,64], f32[2,32,64], f32[TRIPS,64,64]) parameter(0)
  i.3 = s32[] get-tuple-element(s.3), index=0
  n.3 = s32[] constant(TRIPS)
  ROOT less.3 = pred[] compare(i.3, n.3), direction=LT
}
backward {
  s.4 = (s32[], f32[64,64], f32[2,32,64], f32[TRIPS,64,64]) parameter(0)
  i.4 = s32[] get-tuple-element(s.4), index=0
  x.4 = f32[64,64] get-tuple-element(s.4), index=1
  w.4 = f32[2,32,64] get-tuple-element(s.4), index=2
  kept.4 = f32[TRIPS,64,64] get-tuple-element(s.4), index=3
  zero.4 = s32[] constant(0)
  one.4 = s32[] constant(1)
  most.4 = s32[] constant(TRIPS)
  next.4 = s32[] add(i.4, one.4)
  place.4 = s32[] subtract(most.4, next.4)
  part.4 = f32[1,32,64] dynamic-slice(w.4, place.4, zero.4, zero.4), dynamic_slice_sizes={1,32,64}
  own.4 = f32[32,64] reshape(part.4)
  layer.4 = f32[64,64] all-gather(own.4), channel_id=2, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
  back.4 = f32[64,64] dot(x.4, layer.4), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  begun.4 = f32[1,64,64] dynamic-slice(kept.4, place.4, zero.4, zero.4), dynamic_slice_sizes={1,64,64}
  there.4 = f32[64,64] reshape(begun.4)
  y.4 = f32[64,64] multiply(back.4, there.4)
  ROOT r.4 = (s32[], f32[64,64], f32[2,32,64], f32[TRIPS,64,64]) tuple(next.4, y.4, w.4, kept.4)
}
ENTRY main {
  x0 = f32[64,64] parameter(0)
  w0 = f32[2,32,64] parameter(1)
  start = s32[] constant(0)
  nothing = f32[] constant(0)
  empty = f32[TRIPS,64,64] broadcast(nothing), dimensions={}
  init = (s32[], f32[64,64], f32[2,32,64], f32[TRIPS,64,64]) tuple(start, x0, w0, empty)
  there = (s32[], f32[64,64], f32[2,32,64], f32[TRIPS,64,64]) while(init), condition=condition, body=forward
  top = f32[64,64] get-tuple-element(there), index=1
  stack = f32[TRIPS,64,64] get-tuple-element(there), index=3
  turn = (s32[], f32[64,64], f32[2,32,64], f32[TRIPS,64,64]) tuple(start, top, w0, stack)
  back = (s32[], f32[64,64], f32[2,32,64], f32[TRIPS,64,64]) while(turn), condition=condition.2, body=backward
  bottom = f32[64,64] get-tuple-element(back), index=1
  ROOT t = (f32[64,64], f32[64,64]) tuple(top, bottom)
}
"""
CLUSTER = CompileOptions(machine=machine_named("tcp-cluster{node=1}"), check=True)


def compiled_opcodes(trips: int, options: CompileOptions) -> Counter[Opcode]:
    *_, (_, compilation) = stages(parse(LAYERS.replace("TRIPS", str(trips))), None, options)
    return Counter(x.opcode for x in compilation.module.all_instructions())


def test_loops_of_few_instructions_are_unrolled_where_collectives_overlap() -> None:
    """After unrolling, the layers that both loops gather are gathered once.

    No value is kept in an array from which a slice is read.
    """
    found = compiled_opcodes(2, CLUSTER)
    assert found[Opcode.WHILE] == 0
    assert found[Opcode.DYNAMIC_UPDATE_SLICE] == 0
    assert found[Opcode.ALL_GATHER] + found[Opcode.ALL_GATHER_START] <= 2


@pytest.mark.parametrize(
    ("trips", "options"),
    [
        (2, replace(CLUSTER, without=("loop-unrolling",))),
        (2, CompileOptions()),
        (400, CLUSTER),  # would have 4,096 instructions and more
    ],
    ids=["without", "one node", "long"],
)
def test_loops_that_stay(trips: int, options: CompileOptions) -> None:
    assert compiled_opcodes(trips, options)[Opcode.WHILE] == 2
