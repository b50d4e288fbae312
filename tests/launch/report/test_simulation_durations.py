"""Durations of a trace give the traced step when they are simulated; predicted ones the predicted step."""

from __future__ import annotations

from typing import Any

import pytest

import spmd
from collectives.cost.estimator import CostError
from collectives.cost.roofline import RooflineEstimator
from collectives.simulate.reasons import Cause
from collectives.simulate.result import Simulation
from collectives.simulate.simulate import SimulationOptions
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.report.simulation_durations import TimedStep, executions, simulate_timed, traced_steps
from launch.report.simulation_predicted import predicted_durations
from runtime.cpu.prediction.step import predicted_step
from spmd.hlo import HloModule
from spmd.json_fields import JsonFields
from spmd.machine.named import machine_named
from spmd.text.parser import parse_module
from tests.collectives.simulate.scheduled import loop, ring, scheduled, work
from tests.paths import CASES

TEXT = """HloModule two, is_scheduled=true, num_partitions=2
sum { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT added = f32[] add(x, y) }
ENTRY main { p = f32[8] parameter(0)
  w = f32[8] negate(p)
  g = f32[8] all-reduce(w), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum
  ROOT z = f32[8] negate(g) }
"""

#: name, kind, from and to in microseconds, of each device.
DEVICES = (
    [
        ("w", "Kernel", 0, 10),
        ("g", "CollectiveStart", 10, 11),
        ("g", "CollectiveDone", 11, 35),
        ("z", "Kernel", 35, 39),
    ],
    [
        ("w", "Kernel", 2, 30),
        ("g", "CollectiveStart", 30, 31),
        ("g", "CollectiveDone", 31, 34),
        ("z", "Kernel", 34, 36),
    ],
)


def trace_of(devices: Any, step: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "ph": "X",
            "cat": kind,
            "name": name,
            "ts": start,
            "dur": end - start,
            "pid": device,
            "args": {"step": step},
        }
        for device, events in enumerate(devices)
        for name, kind, start, end in [*events, *in_flight(events)]
    ]


def in_flight(events: Any) -> list[tuple[str, str, int, int]]:
    """Return the intervals from each start to its done."""
    begun = [(name, start) for name, kind, start, _ in events if kind == "CollectiveStart"]
    ended = [end for _, kind, _, end in events if kind == "CollectiveDone"]
    return [
        (name, "Collective", start, end) for (name, start), end in zip(begun, ended, strict=True)
    ]


def steps_of(events: list[dict[str, Any]], module: HloModule) -> list[TimedStep]:
    return traced_steps(JsonFields({"traceEvents": events}, "trace", CostError), module)


def simulated(module: HloModule, step: TimedStep) -> Simulation:
    described = RooflineEstimator.of(module, machine_named())
    return simulate_timed(module, step, described, SimulationOptions())


def test_waiting_for_a_late_peer_is_found_again() -> None:
    """Both devices are ready at 30.

    The collective takes 5 us on device 0; 20 us of the 25 us there are waiting for device 1.
    """
    module = parse_module(TEXT)
    (step,) = steps_of(trace_of(DEVICES), module)
    assert step.begins == pytest.approx((0.0, 2e-6))
    assert step.seconds == pytest.approx(39e-6)
    assert [one.collectives["g"] for one in step.devices] == pytest.approx([5e-6, 4e-6])
    assert step.devices[1].compute["w"] == pytest.approx(28e-6)
    found = simulated(module, step)
    assert (found.device, found.seconds) == (0, pytest.approx(39e-6))
    assert dict(found.collectives[0].causes)[Cause.LATE_PEER] == pytest.approx(20e-6)


def test_the_first_step_warms_up() -> None:
    module = parse_module(TEXT)
    later = [[(n, k, 3 * a, 3 * b) for n, k, a, b in own] for own in DEVICES]
    (step,) = steps_of([*trace_of(DEVICES), *trace_of(later, 1)], module)
    assert simulated(module, step).seconds == pytest.approx(117e-6) == step.seconds


def test_now_one_is_late_and_now_the_other() -> None:
    """Each device works for 10 and 30 us, so that the other one waits in one trip: on average they are alike."""
    made = scheduled([loop("l", 2, work("w", 0.0), ring("g", 0.0))])
    times = ([(0, 10, 35), (35, 65, 70)], [(0, 30, 35), (35, 45, 70)])
    devices = [
        [event for start, ready, end in own for event in _trip(start, ready, end)] for own in times
    ]
    (step,) = steps_of(trace_of(devices), made.module)
    assert step.devices[0].compute["w"] == pytest.approx(20e-6)
    assert step.series[0]["w"] == pytest.approx((10e-6, 30e-6))
    found = simulated(made.module, step)
    assert found.seconds == pytest.approx(70e-6) == step.seconds
    assert dict(found.collectives[0].causes)[Cause.LATE_PEER] == pytest.approx(20e-6)


def _trip(start: float, ready: float, end: float) -> list[tuple[str, str, float, float]]:
    return [
        ("w", "Kernel", start, ready),
        ("g", "CollectiveStart", ready, ready),
        ("g", "CollectiveDone", ready, end),
    ]


@pytest.mark.parametrize("case", ["mlp_dp2", "ring_attention4"])
def test_predicted_instructions_make_the_predicted_step(case: str) -> None:
    """Devices with a core each: nobody waits, and a simulation adds up what the prediction has added up."""
    module = spmd.load(CASES / case / "module.hlo")
    executable = compile_module(module, None, CompileOptions())
    machine, cores = machine_named(), executable.num_devices
    predicted = predicted_step(executable.program, executable.module, machine, cores)
    found = simulated(
        executable.module, TimedStep((predicted_durations(executable, machine, cores),))
    )
    assert found.seconds == pytest.approx(predicted.seconds)


def test_executions_count_trips() -> None:
    module = compile_module(
        spmd.load(CASES / "ring_attention4" / "module.hlo"), None, CompileOptions()
    ).module
    times = executions(module)
    assert {times[x] for x in module.entry.instructions} == {1}
    assert max(times.values()) > 1
