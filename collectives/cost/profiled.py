"""ProfiledEstimator: durations as they were measured, by instruction; an estimate for what was not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from collectives.cost.collective_bytes import collective_of
from collectives.cost.estimator import CollectiveTime, CostError, Estimator, LinkUse
from spmd.hlo.instruction import HloInstruction
from spmd.json_fields import read_fields
from spmd.lazy_dataclass import dataclass

MAX_BYTES = 1 << 30
#: Of one execution.
_SECONDS = (0.0, 1e6)


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
        measured = self.durations.collectives
        known = measured.get(instruction.name, measured.get(collective_of(instruction).name))
        if known is None:
            return guess
        scale = known / guess.seconds if guess.seconds else 0.0
        links = tuple(LinkUse(one.exchange, one.sent, one.seconds * scale) for one in guess.links)
        return replace(guess, seconds=known, links=links)


def with_measured(estimator: Estimator, seconds: Iterable[tuple[str, float]]) -> Estimator:
    """``estimator``, but for work that took so many ``seconds``, by name, where there is any."""
    known = dict(seconds)
    return ProfiledEstimator(Durations(known), estimator) if known else estimator


def read_durations(data: bytes, where: str) -> Durations:
    """Seconds by name, ``{"fusion.3": 1e-4, ..}``. CostError for anything else."""
    fields = read_fields(data, where, "profile", MAX_BYTES, CostError)
    seconds = {name: fields.number(name, _SECONDS) for name in fields.names}
    return Durations(seconds, seconds)
