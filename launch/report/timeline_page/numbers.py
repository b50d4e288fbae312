"""The step's figures in the page's header: step = compute + slowed + exposed + other, as in the report's text."""

from __future__ import annotations

from collections.abc import Iterator

from launch.report.overlap.model import OverlapReport
from spmd.lazy_dataclass import dataclass

_HINTS = {
    "step, measured": "a typical step, mean over devices",
    "step, predicted": "a simulation of the same schedule on the described machine",
    "reference step": "the same step, which waits for every collective where it starts",
    "compute": "kernels and copies, with their time if no collective is in flight",
    "slowed": "additional time of kernels that overlap collectives",
    "exposed": "devices wait for collectives",
    "hidden": "time of collectives in flight while the device computes",
    "effective overlap": "time saved by collectives in flight",
}


@dataclass(frozen=True, slots=True)
class StepNumber:
    """A figure of the page's header.

    seconds, total: the figure, and what it is a part of, if of anything.
    hint: explanation of ``name``.
    """

    name: str
    seconds: float
    total: float | None = None

    @property
    def hint(self) -> str:
        return _HINTS[self.name]


def step_numbers(report: OverlapReport) -> Iterator[StepNumber]:
    """Yield the known figures of _HINTS, in its order."""
    total = report.seconds
    yield StepNumber("step, measured", total)
    predicted = (report.run.predicted or {}).get("step_s")
    if isinstance(predicted, int | float):
        yield StepNumber("step, predicted", predicted)
    if report.reference_seconds is not None:
        yield StepNumber("reference step", report.reference_seconds)
    yield StepNumber("compute", report.compute - report.slowed, total)
    yield StepNumber("slowed", report.slowed, total)
    yield StepNumber("exposed", report.exposed, total)
    yield StepNumber("hidden", report.hidden)
    yield StepNumber("effective overlap", report.effective)
