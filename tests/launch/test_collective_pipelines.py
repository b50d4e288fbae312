"""Which groups of passes on collectives a compilation has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.collective_pipelines import on_optimized, on_scheduled
from launch.options import COLLECTIVE_GROUPS, CompileOptions
from spmd.machine.named import machine_named

OVERLAPPING = CompileOptions(machine=machine_named("dgx-h100"))


def groups(options: CompileOptions) -> tuple[str, ...]:
    return tuple(x.name for x in (*on_optimized(options), *on_scheduled(options)))


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
