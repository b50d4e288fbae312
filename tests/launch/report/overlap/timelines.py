"""Timelines made by hand, in microseconds, as traces that the report reads: what is planted in them is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from launch.report.clock import ONE_CLOCK, ClockLine
from launch.report.overlap.model import CollectiveOverlap, MeasuredRun, OverlapReport, Site
from launch.report.overlap.program_notes import ProgramNotes
from launch.report.overlap.read import run_of_trace
from launch.report.overlap.report import overlap_report
from launch.report.trace import TracedDevice, TracedStep, chrome_trace
from runtime.timeline.events import CollectiveEvent, Event, Stream
from spmd.text.parser import parse_module

MODULE = """HloModule planted, is_scheduled=true
ENTRY main { ROOT k = f32[] parameter(0), metadata={op_name="jit(f)/k" source_file="f.py" source_line=7} }
"""


class Lane:
    """One device in one step: every call adds what comes next. Microseconds; ``at`` is where it has come to."""

    def __init__(self, at: float = 0.0) -> None:
        self.at = self.begin = at
        self.events: list[Event] = []
        self._issued: dict[str, int] = {}

    def kernel(self, name: str, length: float) -> Lane:
        self._add(name, "Kernel", length)
        return self

    def start(self, name: str, length: float = 0.0) -> Lane:
        self._issued[name] = _ns(self.at)
        self._add(name, "CollectiveStart", length)
        return self

    def wait(self, name: str, landed: float) -> Lane:
        """Wait until the collective has landed, where that is not past."""
        begin = _ns(self.at)
        self._add(f"{name}-done", "CollectiveDone", max(landed - self.at, 0.0))
        self.events.append(
            CollectiveEvent(
                name,
                "Collective",
                Stream.COMMUNICATION,
                self._issued.pop(name),
                _ns(self.at),
                1024,
                wait_start=begin,
                landed=_ns(landed),
            )
        )
        return self

    def step(self, number: int, blocking: bool, processor: float | None = None) -> TracedStep:
        root = Event(
            "main", "ThunkSequence", Stream.COMPUTE, _ns(self.begin), _ns(self.at), 0, depth=0
        )
        known = None if processor is None else _ns(processor)
        return TracedStep(number, blocking, [*self.events, root], known)

    def _add(self, name: str, kind: str, length: float) -> None:
        end = _ns(self.at + length)
        self.events.append(Event(name, kind, Stream.COMPUTE, _ns(self.at), end, 64, depth=1))
        self.at += length


def _ns(microseconds: float) -> int:
    return round(1e3 * microseconds)


def site(name: str, independent: float | None = None, **others: object) -> Site:
    """A reduction among devices 0 and 1 over the network. independent, limited, in_flight_limited: microseconds."""
    seconds = {
        key: 1e-6 * value
        for key, value in others.items()
        if key in ("limited", "in_flight_limited")
    }  # type: ignore[operator]
    known = {
        "kind": "all-reduce",
        "bytes": 4096,
        "groups": ((0, 1),),
        "exchanges": ("network",),
        **others,
        **seconds,
    }
    free = None if independent is None else 1e-6 * independent
    return Site(name, independent=free, **known)  # type: ignore[arg-type]


def measured(
    steps: Sequence[Sequence[Lane]],
    reference: Sequence[Sequence[Lane]],
    sites: Sequence[Site],
    *,
    processor: Mapping[int, Sequence[float]] | None = None,
    clocks: Sequence[ClockLine] = (),
    predicted: dict[str, object] | None = None,
) -> MeasuredRun:
    """``steps[s][d]``, of which the first half of the numbers are as scheduled. processor: by step, of each device."""
    count = len(steps[0])
    given = processor or {}
    devices = [
        TracedDevice(
            [
                lanes[device].step(
                    number,
                    number >= len(steps),
                    given[number][device] if number in given else None,
                )
                for number, lanes in enumerate([*steps, *reference])
            ],
            clocks[device] if clocks else ONE_CLOCK,
        )
        for device in range(count)
    ]
    notes = ProgramNotes("planted-machine", {one.name: one for one in sites}, predicted)
    return run_of_trace(chrome_trace(devices, parse_module(MODULE), notes), "planted")


def report(
    steps: Sequence[Sequence[Lane]],
    reference: Sequence[Sequence[Lane]],
    sites: Sequence[Site],
    **others: object,
) -> OverlapReport:
    return overlap_report(measured(steps, reference, sites, **others))  # type: ignore[arg-type]


def collective(found: OverlapReport, name: str) -> CollectiveOverlap:
    return next(one for one in found.collectives if one.site.name == name)
