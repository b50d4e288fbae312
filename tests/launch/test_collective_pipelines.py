"""Which groups of passes on collectives a compilation has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectives.schedule.phases import is_start
from launch.collective_groups import COLLECTIVE_GROUPS
from launch.collective_pipelines import HidingNotes, on_optimized, on_scheduled
from launch.options import CompileOptions
from launch.pipeline import compile_module, stages
from runtime.saved import load_bytes, save_bytes
from spmd import parse
from spmd.machine.named import machine_named
from spmd.passes.options import PassOptionError, parse_passes

OVERLAPPING = CompileOptions(machine=machine_named("dgx-h100"))


def groups(options: CompileOptions) -> tuple[str, ...]:
    """Of which there are pipelines, in their order."""
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
    named = {s.machine for s in steps if hasattr(s, "machine")}
    assert named == {OVERLAPPING.machine.name}


def test_collectives_that_could_be_hidden_are_joined_for_a_latency_alone() -> None:
    """A sixteenth of such a one's time on the slowest link that a device can compute beside."""
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
    assert compilation.latency is not None
    assert compilation.overlap is not None
    starts = [x.name for x in compilation.module.entry.instructions if is_start(x)]
    assert [one.name for one in compilation.overlap.collectives] == starts != []


def test_nothing_is_said_where_nothing_is_hidden() -> None:
    *_, (_, compilation) = stages(parse(SUMS), None, CompileOptions())
    assert (compilation.latency, compilation.overlap) == (None, None)


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


def test_listeners_are_no_options() -> None:
    """A pipeline's text says the same, whoever listens, and cannot name them."""
    (heard,) = on_scheduled(OVERLAPPING, HidingNotes())
    (unheard,) = on_scheduled(OVERLAPPING)
    assert heard != unheard
    assert [str(step) for step in heard.passes] == [str(step) for step in unheard.passes]
    with pytest.raises(PassOptionError, match="has no option 'told'"):
        parse_passes("async-to-sync{told=x}")
