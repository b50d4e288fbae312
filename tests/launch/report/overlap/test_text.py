"""The report on a terminal: which reasons are listed below a collective."""

from __future__ import annotations

import pytest

from launch.report.overlap.text import format_report
from tests.launch.report.overlap.timelines import Lane, report, site


def step(b: float = 30, start: float = 0, landed: float = 30) -> Lane:
    """b runs beside g, which takes 20 us by itself, and 2 us to start."""
    lane = Lane().kernel("a", 10).start("g", start).kernel("b", b).wait("g", landed)
    return lane.kernel("c", 5)


REFERENCE = [
    [Lane().kernel("a", 10).start("g").wait("g", 30).kernel("b", 30).kernel("c", 5) for _ in "01"]
]
SLOWED = "contention: kernels that overlap it take 30 us longer than alone"
LATE = "late peer: device 1 arrives 50 us later than device 0: its a takes 50 us longer"


@pytest.mark.parametrize(
    ("lanes", "lines"),
    [
        # Starting it costs less than the slowdown, but is all that is exposed.
        ([step(b=60, start=2)] * 2, [SLOWED, "exposed: issue 2 us"]),
        # One reason, which has been said.
        ([step(landed=80), Lane().kernel("a", 60).start("g").kernel("b", 30)], [LATE]),
        # A hundredth of a microsecond of 40 is none.
        (
            [step(start=0.01, landed=80), Lane().kernel("a", 60).start("g").kernel("b", 30)],
            [LATE],
        ),
    ],
)
def test_reasons_that_are_listed(lanes: list[Lane], lines: list[str]) -> None:
    late = lanes[1]
    if late is not lanes[0]:
        late.wait("g", 80).kernel("c", 5)
    printed = format_report(report([lanes], REFERENCE, [site("g", 30)]), 20).split("\n")
    place = next(n for n, line in enumerate(printed) if line.startswith("  g "))
    below = [line.strip() for line in printed[place + 1 :]]
    assert below[: below.index("")] == lines
