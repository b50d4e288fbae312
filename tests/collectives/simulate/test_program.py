"""Activities of a program: as many as there are instructions, however often computations are run."""

from __future__ import annotations

import pytest

from collectives.cost.estimator import CollectiveTime
from collectives.simulate.activities import Activities, Loop
from collectives.simulate.program import program_of
from collectives.simulate.simulate import simulate
from spmd.text.parser import parse_module
from tests.collectives.simulate.scheduled import TableEstimator

_LEVELS = 40
_WORK = "r = f32[8] negate(p)"
_MEETING = "r = f32[8] all-reduce(p), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum"


def doubling(inside: str, levels: int, run: str) -> str:
    """``inside`` 2^levels times: each level runs the one below it twice."""
    text = """HloModule doubling, is_scheduled=true, num_partitions=2
sum { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT added = f32[] add(x, y) }
"""
    text += f"level0 {{ p = f32[8] parameter(0)\n  ROOT {inside} }}\n"
    for level in range(1, levels + 1):
        name = "ENTRY main" if level == levels else f"level{level}"
        zero, one = (run.format(operand=x, level=level - 1) for x in ("p", "a"))
        text += f"{name} {{ p = f32[8] parameter(0)\n  n = s32[] constant(0)\n  a = f32[8] {zero}\n  ROOT b = f32[8] {one} }}\n"
    return text


_CALL = "call({operand}), to_apply=level{level}"
_BRANCH = "conditional(n, {operand}), branch_computations={{level{level}}}"


def distinct(activities: Activities, seen: dict[int, int] | None = None) -> int:
    """Activities of all sequences that are objects of their own."""
    seen = {} if seen is None else seen
    if id(activities) not in seen:
        seen[id(activities)] = len(activities)
        for activity in activities:
            if isinstance(activity, Loop):
                distinct(activity.body, seen)
    return sum(seen.values())


@pytest.mark.parametrize("run", [_CALL, _BRANCH])
@pytest.mark.parametrize("inside", [_WORK, _MEETING])
def test_computations_that_run_others_twice_are_there_once(inside: str, run: str) -> None:
    module = parse_module(doubling(inside, _LEVELS, run))
    estimator = TableEstimator({"r": 1.0}, {"r": CollectiveTime(1.0, "ring", ())})
    program = program_of(module, [estimator])
    assert distinct(program.activities) <= module.instruction_count


@pytest.mark.parametrize("run", [_CALL, _BRANCH])
@pytest.mark.parametrize("inside", [_WORK, _MEETING])
def test_all_runs_take_their_time(inside: str, run: str) -> None:
    module = parse_module(doubling(inside, 5, run))
    estimator = TableEstimator({"r": 1.0}, {"r": CollectiveTime(1.0, "ring", ())})
    found = simulate(module, [estimator])
    assert (found.seconds, found.bound.seconds) == (32.0, 32.0)
    assert sum(one.executions for one in found.collectives) == (32 if inside is _MEETING else 0)


def test_work_that_doubles_takes_no_time_to_simulate() -> None:
    module = parse_module(doubling(_WORK, _LEVELS, _CALL))
    assert simulate(module, [TableEstimator({"r": 1.0}, {})]).seconds == 2.0**_LEVELS
