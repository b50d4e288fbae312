"""The step's figures in the page's header."""

from __future__ import annotations

from collections.abc import Iterator

from launch.report.overlap.model import OverlapReport

#: What it is, nanoseconds, of how many it is a part (0: of nothing), and a hint.
Number = tuple[str, int, int, str]


def step_numbers(report: OverlapReport) -> Iterator[Number]:
    whole = _ns(report.seconds)
    yield (
        "step, measured",
        whole,
        0,
        "a typical step, from its first event to its last, mean of devices",
    )
    predicted = None if report.run.predicted is None else report.run.predicted.get("step_s")
    if isinstance(predicted, (int, float)):
        hint = f"a simulation of the same schedule on {report.run.machine}"
        yield "step, predicted", _ns(predicted), 0, hint
    if report.reference_seconds is not None:
        hint = "the same step with every collective waited for where it is started"
        yield "step without overlap", _ns(report.reference_seconds), 0, hint
    yield (
        "compute",
        _ns(report.compute),
        whole,
        "kernels and copies, slowed ones as long as they took",
    )
    yield "exposed", _ns(report.exposed), whole, "devices stand still for collectives"
    yield (
        "slowed",
        _ns(report.slowed),
        whole,
        "what kernels took longer beside collectives; a part of compute",
    )
    yield "hidden", _ns(report.hidden), 0, "collectives under way while the device computed"
    yield (
        "effective overlap",
        _ns(report.effective),
        0,
        "what having collectives in flight was worth",
    )


def _ns(seconds: float) -> int:
    return round(1e9 * seconds)
