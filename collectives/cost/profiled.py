"""ProfiledEstimator: measured durations by instruction, and estimates for instructions that were not measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from collectives.cost.collective_bytes import collective_of
from collectives.cost.estimator import CollectiveTime, CostError, Estimator, LinkUse
from spmd.hlo.instruction import HloInstruction
from spmd.json_fields import read_fields
from spmd.lazy_dataclass import dataclass

MAX_BYTES = 1 << 30
#: Range of plausible durations of one execution, in seconds.
_SECONDS = (0.0, 1e6)


@dataclass(frozen=True)
class Durations:
    """Measured seconds of one execution, by instruction name.

    ``compute`` holds the times for which instructions occupy the device, ``collectives`` those from start to done.
    """

    compute: dict[str, float] = field(default_factory=dict)
    collectives: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ProfiledEstimator:
    """An Estimator that returns measured ``durations``, and estimates of ``fallback`` for other instructions."""

    durations: Durations
    fallback: Estimator

    def compute(self, instruction: HloInstruction) -> float:
        known = self.durations.compute.get(instruction.name)
        return self.fallback.compute(instruction) if known is None else known

    def collective(self, instruction: HloInstruction) -> CollectiveTime:
        """Return the measured time. Each link is busy for the same fraction of it as in the fallback's estimate."""
        guess = self.fallback.collective(instruction)
        measured = self.durations.collectives
        known = measured.get(instruction.name, measured.get(collective_of(instruction).name))
        return guess if known is None else _lasting(guess, known)

    def host_copy(self, instruction: HloInstruction) -> CollectiveTime | None:
        """Return the measured time, if the fallback knows that the instruction is such a copy."""
        guess = self.fallback.host_copy(instruction)
        known = self.durations.compute.get(instruction.name)
        return guess if guess is None or known is None else _lasting(guess, known)


def _lasting(guess: CollectiveTime, seconds: float) -> CollectiveTime:
    """Return ``guess`` with another duration, of which each link is busy for the same fraction."""
    scale = seconds / guess.seconds if guess.seconds else 0.0
    links = tuple(LinkUse(one.exchange, one.sent, one.seconds * scale) for one in guess.links)
    return replace(guess, seconds=seconds, links=links)


def with_measured(estimator: Estimator, seconds: Iterable[tuple[str, float]]) -> Estimator:
    """Return an estimator that uses the measured (name, ``seconds``) pairs, and ``estimator`` for other work."""
    known = dict(seconds)
    return ProfiledEstimator(Durations(known), estimator) if known else estimator


def read_durations(data: bytes, where: str) -> Durations:
    """Parse durations in JSON: ``{"fusion.3": 1e-4, ..}``, seconds by instruction name.

    ``where`` names the file in errors. Raises CostError if the data has any other form.
    """
    fields = read_fields(data, where, "profile", MAX_BYTES, CostError)
    seconds = {name: fields.number(name, _SECONDS) for name in fields.names}
    return Durations(seconds, seconds)
