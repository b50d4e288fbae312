"""Traces: tracks, arrows, counters, corrected clocks; what is no trace is refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest

from launch.report.clock import ClockLine, ClockOffset
from launch.report.overlap.model import MeasuredRun
from launch.report.overlap.program_notes import ProgramNotes
from launch.report.overlap.read import TraceError, read_trace
from launch.report.trace import TracedDevice, chrome_trace
from spmd.text.parser import parse_module
from tests.launch.report.overlap.timelines import MODULE, Lane, measured, site

#: Device 1's clock is 5 us ahead.
AHEAD = ClockLine(ClockOffset(5_000, 10), ClockOffset(5_000, 20))
SITES = {one.name: one for one in (site("g"), site("h"))}


def lane(at: float = 0.0) -> Lane:
    """g and h are in flight at the same time."""
    made = Lane(at).kernel("a", 10).start("g").kernel("b", 10).start("h").kernel("k", 10)
    return made.wait("g", at + 35).wait("h", at + 50)


def trace() -> dict[str, Any]:
    devices = [
        TracedDevice([lane().step(1, False, 45.0)]),
        TracedDevice([lane(5.0).step(1, False, 50.0)], AHEAD),
    ]
    notes = ProgramNotes("planted-machine", SITES, None, ("nothing is predicted: a test",))
    return chrome_trace(devices, parse_module(MODULE), notes)


def of_phase(phases: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in found["traceEvents"] if event["ph"] in phases]


def test_clocks_are_corrected() -> None:
    found = trace()
    for name in ("a", "g", "k"):
        starts = {
            event["pid"]: event["ts"] for event in of_phase("X", found) if event["name"] == name
        }
        assert starts[0] == starts[1]
    assert found["otherData"]["clock_uncertainty_us"] == [0.0, 0.02]


def test_no_track_has_slices_that_overlap_in_part() -> None:
    """Viewers nest slices of a track or lose them."""
    for (_, track), own in grouped(of_phase("X", trace())).items():
        for one, other in itertools.pairwise(own):
            inside = one["ts"] + one["dur"] >= other["ts"] + other["dur"]
            assert one["ts"] + one["dur"] <= other["ts"] or (track == 0 and inside)


def grouped(events: Iterable[dict[str, Any]]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in sorted(events, key=lambda one: (one["ts"], -one["dur"])):
        found.setdefault((event["pid"], event["tid"]), []).append(event)
    return found


def test_arrows_go_from_the_issue_to_the_landing_on_each_peer() -> None:
    found = of_phase("sf", trace())
    ends = {(one["id"], one["ph"]): one for one in found}
    arrows = {
        (ends[n, "s"]["name"], ends[n, "s"]["pid"], ends[n, "f"]["pid"], ends[n, "s"]["ts"])
        for n, phase in ends
        if phase == "s"
    }
    assert arrows == {("g", 0, 1, 10.0), ("g", 1, 0, 10.0), ("h", 0, 1, 20.0), ("h", 1, 0, 20.0)}
    assert len(found) == 2 * len(arrows)
    landed = sorted({round(ends[n, "f"]["ts"], 1) for n, _ in ends})
    assert landed == [35.0, 50.0]


def test_counter_of_bytes_in_flight() -> None:
    counts = [(one["ts"], one["args"]["bytes"]) for one in of_phase("C", trace()) if not one["pid"]]
    assert counts == [(10.0, 4096), (20.0, 8192), (35.0, 4096), (50.0, 0)]


def test_run_that_is_read_again() -> None:
    found = read_trace(json.dumps(trace()).encode(), "f.json")
    assert (found.module, found.machine, found.devices) == ("planted", "planted-machine", 2)
    assert found.sites == SITES
    assert found.notes == ("nothing is predicted: a test",)
    (step,) = found.steps
    assert step.seconds == pytest.approx(50e-6)
    g, h = step.devices[1].async_intervals
    assert (g.members, h.execution, g.last) == ((0, 1), 0, 1)
    assert g.landed - g.arrived == pytest.approx(25e-6)
    assert h.exposed == pytest.approx(15e-6)
    # 50 us, of which 45 it had a core and 20 it waited.
    assert step.devices[0].stolen == 0.0
    assert [(x.name, x.leaf) for x in step.devices[0].slices][:3] == [
        ("main", False),
        ("a", True),
        ("g", True),
    ]


def test_executions_of_a_loop_are_matched_by_number() -> None:
    zero, one = Lane(), Lane()
    for trip in range(3):
        for device, made in enumerate((zero, one)):
            made.kernel("k", 10 + 10 * device).start("g").wait("g", 25 * trip + 25)
    run = measured([[zero, one]], [], [site("g")])
    async_intervals = run.steps[0].devices[0].async_intervals
    assert [async_interval.execution for async_interval in async_intervals] == [0, 1, 2]
    assert [
        async_interval.arrived - async_interval.issued for async_interval in async_intervals
    ] == pytest.approx([1e-5] * 3)


def test_a_device_of_a_permute_meets_its_source_and_its_target() -> None:
    ring = site("g", groups=(), pairs=((0, 1), (1, 2), (2, 3)))
    assert [ring.meetings()[device] for device in range(4)] == [
        (0, 1),
        (0, 1, 2),
        (1, 2, 3),
        (2, 3),
    ]
    lanes = [Lane().kernel("k", length).start("g").wait("g", 60) for length in (10, 40, 20, 50)]
    async_intervals = [
        device.async_intervals[0] for device in measured([lanes], [], [ring]).steps[0].devices
    ]
    assert [async_interval.last for async_interval in async_intervals] == [1, 1, 3, 3]


def without_landing(found: dict[str, Any]) -> None:
    for event in found["traceEvents"]:
        if "landed" in event.get("args", {}):
            del event["args"]["landed"]


def of_a_device_more(found: dict[str, Any]) -> None:
    found["otherData"]["clock_uncertainty_us"].pop()


def without_events(found: dict[str, Any]) -> None:
    found["traceEvents"] = []


def with_a_text_for_a_time(found: dict[str, Any]) -> None:
    found["traceEvents"][3]["ts"] = "soon"


def with_a_step_that_ends_before_it_begins(found: dict[str, Any]) -> None:
    found["traceEvents"][3]["dur"] = -1.0


def told(field: str, value: object) -> Any:
    """``field`` of otherData is another."""

    def spoil(found: dict[str, Any]) -> None:
        found["otherData"][field] = value

    return spoil


def of_g(field: str, value: object) -> Any:
    def spoil(found: dict[str, Any]) -> None:
        found["otherData"]["collectives"]["g"][field] = value

    return spoil


G = {"op": "g", "time_s": 1e-5, "exposed_s": 0.0, "executions": 1, "why": ""}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (with_a_step_that_ends_before_it_begins, "dur must be from 0 to"),
        (told("clock_uncertainty_us", [10**400, 0]), "clock_uncertainty_us must be a list of num"),
        (told("clock_uncertainty_us", [True, 0]), "clock_uncertainty_us must be a list of numbers"),
        (told("clock_uncertainty_us", [-1, 0]), "clock_uncertainty_us must be a list of numbers"),
        (told("processor_us", {"9" * 5000: [1, 1]}), "must give 2 numbers for each step"),
        (told("predicted", [1]), "predicted: expected an object"),
        (told("predicted", {"step_s": [1]}), "step_s must be a number"),
        (told("predicted", {"compute_s": "long"}), "compute_s must be a number"),
        (told("predicted", {"kernels": [1]}), "kernels: expected an object"),
        (told("predicted", {"kernels": {"a": "long"}}), "a must be a number"),
        (told("predicted", {"collectives": 3}), "collectives must be a list"),
        (told("predicted", {"collectives": [{"op": "g"}]}), "field 'executions' is missing"),
        (told("predicted", {"collectives": [{**G, "why": 3}]}), "why must be a string"),
        (of_g("groups", [[0, -1]]), "groups must be lists of device numbers"),
        (of_g("groups", [[False, True]]), "groups must be lists of device numbers"),
        (of_g("pairs", [[0, 1, 2]]), "pairs must be of two devices each"),
        (without_landing, "an older trace"),
        (of_a_device_more, "more devices than the 1"),
        (without_events, "no step was recorded"),
        (with_a_text_for_a_time, "ts must be a number"),
    ],
)
def test_what_is_no_trace_of_ours_is_refused(spoil: Any, message: str) -> None:
    found = trace()
    spoil(found)
    with pytest.raises(TraceError, match=message):
        read_trace(json.dumps(found).encode(), "f.json")


def test_numbers_without_end_are_refused() -> None:
    data = json.dumps(trace()).replace("0.02", "1e999").encode()
    with pytest.raises(TraceError, match="clock_uncertainty_us must be a list of numbers"):
        read_trace(data, "f.json")


def test_a_prediction_is_read_as_it_was_written() -> None:
    found = trace()
    predicted = {"step_s": 1e-4, "kernels": {"a": 1e-5}, "collectives": [G], "notes": ["more"]}
    found["otherData"]["predicted"] = predicted
    assert read_trace(json.dumps(found).encode(), "f.json").predicted == predicted


def test_scopes_may_be_long() -> None:
    found = trace()
    name = "/".join(["scope"] * 1000)
    for event in of_phase("X", found):
        event["args"]["op_name"] = name
    run = read_trace(json.dumps(found).encode(), "f.json")
    assert run.instructions["a"].op_name == name


def test_any_other_json_is_refused() -> None:
    for text in (b"[]", b"{}", b"{", b'{"otherData": {}, "traceEvents": 3}'):
        with pytest.raises(TraceError, match=r"^f\.json"):
            read_trace(text, "f.json")


def test_step_that_only_some_devices_have_is_left_out() -> None:
    devices = [
        TracedDevice([lane().step(1, False), lane(100.0).step(2, False)]),
        TracedDevice([lane().step(1, False)]),
    ]
    data = json.dumps(chrome_trace(devices, parse_module(MODULE))).encode()
    found: MeasuredRun = read_trace(data, "f.json")
    assert [step.number for step in found.steps] == [1]
