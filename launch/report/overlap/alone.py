"""Times of kernels and collectives by themselves: from reference steps, else from other parts of the trace.

In a reference step every collective is waited for where it was started, so no kernel overlaps one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import TypeAlias

from collectives.cost.intervals import covered
from launch.report.overlap.model import (
    AsyncInterval,
    DeviceStep,
    MeasuredRun,
    MeasuredStep,
    Reference,
    Slice,
)
from spmd.lazy_dataclass import dataclass

#: Device, name, kind of a slice ("" for an async interval), number of the execution.
Key: TypeAlias = tuple[int, str, str, int]
_COLLECTIVE = ("CollectiveStart", "CollectiveDone")


def is_compute(piece: Slice) -> bool:
    """Return whether the device works in this slice, and not for a collective."""
    return piece.leaf and piece.kind not in _COLLECTIVE


@dataclass(frozen=True)
class Alone:
    """Times without overlap, in seconds.

    kernels: of each slice that computes.
    transfers: of each collective, from when all members were ready to the completion.
    blocked: of each collective, the time that a device waits if nothing hides it.
    """

    reference: Reference
    kernels: Mapping[Key, float]
    transfers: Mapping[Key, float]
    blocked: Mapping[Key, float]

    def of_slice(self, device: int, piece: Slice) -> float | None:
        return self.kernels.get((device, piece.name, piece.kind, piece.execution))

    def transfer(self, async_interval: AsyncInterval) -> float | None:
        return self.transfers.get(_key(async_interval))

    def exposed(self, async_interval: AsyncInterval) -> float | None:
        return self.blocked.get(_key(async_interval))


def alone_of(run: MeasuredRun, reference_steps: Sequence[MeasuredStep]) -> Alone:
    """Return the times from ``reference_steps`` or, if there are none, from other parts of the run."""
    if reference_steps:
        return _of_reference_steps(reference_steps)
    return _of_what_there_is(run)


def _of_reference_steps(steps: Sequence[MeasuredStep]) -> Alone:
    devices = [device for step in steps for device in step.devices]
    return Alone(
        Reference.BLOCKING_STEPS,
        _by_key(devices, _kernels, fmean),
        _by_key(
            devices,
            lambda one: _async_intervals(one, lambda async_interval: async_interval.seconds),
            fmean,
        ),
        _by_key(
            devices,
            lambda one: _async_intervals(one, lambda async_interval: async_interval.exposed),
            fmean,
        ),
    )


def _of_what_there_is(run: MeasuredRun) -> Alone:
    devices = [device for step in run.steps for device in step.devices]
    predicted = run.predicted or {}
    predicted_by_key = _predicted_transfers(devices, predicted)
    least = _by_key(
        devices,
        lambda one: _async_intervals(one, lambda async_interval: async_interval.seconds),
        min,
    )
    transfers = {key: predicted_by_key.get(key, seconds) for key, seconds in least.items()}
    kernels = _by_key(devices, _kernels, min)
    said: Mapping[str, float] = predicted.get("kernels", {})
    kernels = {key: min(seconds, said.get(key[1], seconds)) for key, seconds in kernels.items()}
    kernels |= _by_key(devices, _kernels_outside, min)
    return Alone(Reference.OUTSIDE_COLLECTIVES, kernels, transfers, transfers)


def _predicted_transfers(
    devices: Iterable[DeviceStep], predicted: Mapping[str, object]
) -> dict[Key, float]:
    listed = predicted.get("collectives", [])
    assert isinstance(listed, list)
    seconds = {one["op"]: one["time_s"] / max(one["executions"], 1) for one in listed}
    keys = {
        _key(async_interval): async_interval.name
        for device in devices
        for async_interval in device.async_intervals
    }
    return {key: seconds[name] for key, name in keys.items() if name in seconds}


def _kernels(device: DeviceStep) -> Iterator[tuple[Key, float]]:
    for piece in device.slices:
        if is_compute(piece):
            yield (device.device, piece.name, piece.kind, piece.execution), piece.seconds


def _kernels_outside(device: DeviceStep) -> Iterator[tuple[Key, float]]:
    """Yield the durations of kernels that ran with no collective in flight."""
    flown = [
        (async_interval.issued, async_interval.landed) for async_interval in device.async_intervals
    ]
    for piece in device.slices:
        if is_compute(piece) and not covered((piece.start, piece.end), flown):
            yield (device.device, piece.name, piece.kind, piece.execution), piece.seconds


def _async_intervals(
    device: DeviceStep, seconds: Callable[[AsyncInterval], float]
) -> Iterator[tuple[Key, float]]:
    for async_interval in device.async_intervals:
        yield _key(async_interval), seconds(async_interval)


def _key(async_interval: AsyncInterval) -> Key:
    return async_interval.device, async_interval.name, "", async_interval.execution


def _by_key(
    devices: Iterable[DeviceStep],
    read: Callable[[DeviceStep], Iterable[tuple[Key, float]]],
    reduce: Callable[[list[float]], float],
) -> dict[Key, float]:
    found: dict[Key, list[float]] = defaultdict(list)
    for device in devices:
        for key, seconds in read(device):
            found[key].append(seconds)
    return {key: reduce(each) for key, each in found.items()}
