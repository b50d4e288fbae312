"""Notes for readers of the report: the basis of its figures, and disturbances of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collectives.simulate.reasons import brief
from launch.report.overlap.alone import Alone
from launch.report.overlap.model import MeasuredRun, MeasuredStep, Reason, Reference
from launch.report.overlap.summary import Totals

#: Kernels that take at least this many times as long as predicted count as slowed down.
_SLOWED = 1.5
#: Least fraction of a step without a core that is reported.
_STOLEN = 0.1
#: Least uncertainty of clocks in seconds for which the last member may be wrong.
_UNCERTAIN = 20e-6


def notes_of(
    run: MeasuredRun, steps: Sequence[MeasuredStep], alone: Alone, totals: Totals
) -> Iterator[str]:
    """Yield the notes. ``steps``: those on which the figures are based."""
    if alone.reference is not Reference.BLOCKING_STEPS:
        yield (
            "the trace has no reference steps (spmd profile runs them): the times of kernels and collectives alone "
            f"are {alone.reference.value}"
        )
    elif _all_block(run, steps):
        yield (
            "no collective has a start and a done: steps and reference steps do the same, and their difference is "
            "noise"
        )
    yield from _of_cores(run, steps)
    predicted = (run.predicted or {}).get("compute_s", 0.0)
    if predicted and totals.compute > _SLOWED * predicted:
        yield (
            f"kernels take {totals.compute / predicted:.2g} times as long as predicted for {run.machine}: something "
            "slows them down, or the description does not fit this machine (run spmd calibrate)"
        )
    uncertain = max(run.clock_uncertainty)
    if uncertain > _UNCERTAIN and _late(steps):
        yield (
            f"the clocks of devices agree only to within {brief(uncertain)}: the waits for late peers may be wrong by "
            "as much"
        )


def _all_block(run: MeasuredRun, steps: Sequence[MeasuredStep]) -> bool:
    flown = {
        async_interval.name
        for step in steps
        for device in step.devices
        for async_interval in device.async_intervals
    }
    return bool(flown) and all(run.sites[name].blocking for name in flown)


def _of_cores(run: MeasuredRun, steps: Sequence[MeasuredStep]) -> Iterator[str]:
    for number in range(run.devices):
        own = [step.devices[number] for step in steps]
        lost = sum(step.stolen or 0.0 for step in own) / len(own)
        total = sum(step.seconds for step in own) / len(own)
        if lost > _STOLEN * total:
            yield (
                f"contention: device {number}'s thread had no core for at least {brief(lost)} of its {brief(total)}, "
                "for example because other processes ran on it"
            )


def _late(steps: Sequence[MeasuredStep]) -> bool:
    return any(
        reason is Reason.LATE_PEER
        for step in steps
        for device in step.devices
        for async_interval in device.async_intervals
        for reason, _ in async_interval.parts
    )
