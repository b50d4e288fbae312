"""`--durations`: seconds of work as a profile has found them, for the next compilation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from collectives.cost.estimator import CostError
from launch.cache.program_cache import program_key
from launch.cli import main
from launch.options import CompileOptions
from launch.pipeline import stages
from launch.target.measured_durations import measured_durations
from spmd import parse
from spmd.machine.named import machine_named

TWO_NODES = machine_named("tcp-cluster{node=1}")

#: The large product hides the sum, as the machine is described.
BESIDE = """HloModule beside, num_partitions=2
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y) }
ENTRY main {
  p = f32[1024,1024] parameter(0)
  q = f32[64,1024] parameter(1)
  sum = f32[1024,1024] all-reduce(p), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
  small = f32[64,1024] dot(q, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  large = f32[1024,1024] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  next = f32[64,1024] dot(small, sum), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[64,1024], f32[1024,1024]) tuple(next, large)
}
"""


def event(name: str, micros: float, step: int = 1, **args: bool) -> dict[str, object]:
    return {
        "name": name, "cat": "Kernel", "ph": "X", "ts": 1.0, "dur": micros, "pid": 0, "tid": 0,
        "args": {"step": step, **args},
    }  # fmt: skip


def written(path: Path, found: object) -> Path:
    file = path / "profile.json"
    file.write_text(json.dumps(found))
    return file


def test_seconds_by_name(tmp_path: Path) -> None:
    file = written(tmp_path, {"b": 2e-3, "a": 1})
    assert measured_durations(file) == (("a", 1.0), ("b", 2e-3))


def test_steps_that_wait_count_and_of_all_executions_the_median(tmp_path: Path) -> None:
    waiting = [event("dot", each, blocking=True) for each in (10.0, 30.0, 20.0)]
    others = [event("dot", 99.0), {**event("sum", 5.0, blocking=True), "cat": "Collective"}]
    file = written(tmp_path, {"traceEvents": [*waiting, *others, {"ph": "M"}]})
    assert measured_durations(file) == (("dot", pytest.approx(20e-6)),)


def test_without_such_steps_all_count(tmp_path: Path) -> None:
    file = written(tmp_path, {"traceEvents": [event("dot", 10.0), event("dot", 30.0, 2)]})
    assert measured_durations(file) == (("dot", pytest.approx(20e-6)),)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"traceEvents": []}, "has no kernel"),
        ({"traceEvents": 1}, "must be a list"),
        ({"traceEvents": [{"ph": "X", "cat": "Kernel", "name": 1}]}, "profile.json"),
        ({"dot": -1.0}, "dot"),
        ({"dot": "long"}, "dot"),
    ],
)
def test_refused(found: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(CostError, match=said):
        measured_durations(written(tmp_path, found))


def test_they_are_part_of_a_program_s_key() -> None:
    options = CompileOptions(machine=TWO_NODES)
    measured = replace(options, durations=(("dot.1", 1e-3),))
    assert program_key("", 2, options) != program_key("", 2, measured)


def test_the_schedule_goes_by_them() -> None:
    """Work that was measured to be too short no longer hides the sum."""
    options = CompileOptions(machine=TWO_NODES, fusion=False)

    def beside(durations: tuple[tuple[str, float], ...]) -> float:
        asked = replace(options, durations=durations)
        *_, (_, compilation) = stages(parse(BESIDE), None, asked)
        assert compilation.hiding.report is not None
        (one,) = compilation.hiding.report.collectives
        return one.exposed

    assert beside(()) == 0.0
    assert beside((("large", 1e-6), ("small", 1e-6))) > 0.0


def test_a_profile_is_taken_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "beside.hlo"
    module.write_text(BESIDE)
    trace = tmp_path / "trace.json"
    machine = ("--machine", "tcp-cluster{node=1}")
    profile = ["profile", str(module), *machine, "--steps", "2", "--warm-up", "1"]
    assert main([*profile, "--trace", str(trace)]) == 0
    assert main([*profile, "--durations", str(trace)]) == 0
    capsys.readouterr()
    assert main([*profile, "--durations", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
