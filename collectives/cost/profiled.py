"""ProfiledEstimator: durations as they were measured, by instruction; an estimate for what was not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from collectives.cost.collective_bytes import collective_of
from collectives.cost.estimator import CollectiveTime, CostError, Estimator, LinkUse
from spmd.hlo.instruction import HloInstruction
from spmd.json_fields import JsonFields, read_json

MAX_BYTES = 1 << 30
#: Of one execution.
_SECONDS = (0.0, 1e6)
_MICROSECONDS = (0.0, 1e12)
#: What `spmd run --trace` calls a collective from its start to its done.
_IN_FLIGHT = "Collective"


@dataclass(frozen=True)
class Durations:
    """Seconds of one execution, by name: of what occupies the device, and of collectives from start to done."""

    compute: dict[str, float] = field(default_factory=dict)
    collectives: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ProfiledEstimator:
    """An ``Estimator`` that looks an instruction's name up, and asks ``fallback`` where it does not stand there."""

    durations: Durations
    fallback: Estimator

    def compute(self, instruction: HloInstruction) -> float:
        known = self.durations.compute.get(instruction.name)
        return self.fallback.compute(instruction) if known is None else known

    def collective(self, instruction: HloInstruction) -> CollectiveTime:
        """Links are taken to be busy for the same part of the time as the fallback says."""
        guess = self.fallback.collective(instruction)
        names = (instruction.name, collective_of(instruction).name)
        known = next(
            (self.durations.collectives.get(n) for n in names if n in self.durations.collectives),
            None,
        )
        if known is None:
            return guess
        scale = known / guess.seconds if guess.seconds else 0.0
        links = tuple(LinkUse(one.exchange, one.sent, one.seconds * scale) for one in guess.links)
        return replace(guess, seconds=known, links=links)


def read_durations(data: bytes, where: str) -> Durations:
    """Seconds by name, ``{"fusion.3": 1e-4, ..}``, or a trace in Chrome's form, as `spmd run --trace` writes it: the
    mean of all executions on all devices. CostError for anything else.
    """
    found = read_json(data, where, "profile", MAX_BYTES, CostError)
    fields = JsonFields(found, where, CostError)
    if fields.has("traceEvents"):
        return _of_trace(fields)
    seconds = {name: fields.number(name, _SECONDS) for name in fields.names}
    return Durations(seconds, seconds)


def _of_trace(trace: JsonFields) -> Durations:
    times: tuple[dict[str, list[float]], ...] = (defaultdict(list), defaultdict(list))
    for event in _complete_events(trace):
        seconds = event.number("dur", _MICROSECONDS) / 1e6
        in_flight = event.has("cat") and event.take("cat") == _IN_FLIGHT
        times[in_flight][event.text("name")].append(seconds)
    compute, collectives = (
        {name: sum(each) / len(each) for name, each in found.items()} for found in times
    )
    return Durations(compute, collectives)


def _complete_events(trace: JsonFields) -> Iterator[JsonFields]:
    """Those with a duration ("ph": "X"); a trace has others, too, that name its tracks."""
    events: Any = trace.take("traceEvents")
    if not isinstance(events, list):
        raise CostError(f"{trace.where}: traceEvents must be a list")
    for number, event in enumerate(events):
        fields = trace.inside(event, f"traceEvents[{number}]")
        if fields.has("ph") and fields.take("ph") == "X":
            yield fields
