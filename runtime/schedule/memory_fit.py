"""Rematerialization of a scheduled module until it fits a memory limit, which buffer assignment confirms.

Values are recomputed, or computed in pieces so that large intermediate values never exist entirely. Two roads
(sequences of limits on what may be repeated) are tried, with pieces and without. If both reach the memory limit, the
one that repeats less work wins. The stages of a road do not depend on the memory limit: each stage lowers the peak by
the same fraction of the initial peak, and the first stage that fits is taken. A lower limit therefore continues from
the stage of a higher one.

The second half of a road also repeats collectives, such as the all-gather of weights for the backward pass. It begins
when nothing else lowers the peak.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import islice
from typing import TypeAlias

from runtime.schedule.exact_memory import device_bytes, least_device_bytes, op_facts
from runtime.schedule.module_model import ModuleModel
from runtime.schedule.recompute import Limits
from runtime.schedule.recompute_cost import BYTES_PER_BYTE_SENT, RecomputeCost
from runtime.schedule.rematerialize import Budget, Rematerializer
from spmd.analysis.cost import module_cost
from spmd.hlo import HloComputation, HloModule
from spmd.hlo.clone import clone_module
from spmd.lazy_dataclass import dataclass

#: Each stage lowers the peak by this fraction of the initial peak.
STAGE_SHARE = 1 / 32
MOST_LINKS = 24
#: Limits on the work that may be repeated, which apply one after another.
Road: TypeAlias = tuple[Limits, ...]
REPEATING: Road = (
    Limits(only_cheap=False, most_links=MOST_LINKS),
    Limits(only_cheap=False, most_links=MOST_LINKS, collectives=True),
)
SPLITTING: Road = tuple(replace(way, splits=True) for way in REPEATING)


def fit_memory(
    module: HloModule, limit: int, roads: Sequence[Road] = (REPEATING, SPLITTING)
) -> None:
    """Repeat and split work in a SCHEDULED module until a device needs at most ``limit`` bytes.

    If no road reaches the limit, the module becomes the one of least memory that was found. A module that the runtime
    cannot lower stays unchanged.
    """
    if op_facts(module) is None:
        return
    unlimited = device_bytes(module)
    if unlimited <= limit:
        return
    attempts = [_go(module, limit, road) for road in roads]
    arrived = [attempt for attempt in attempts if attempt.bytes <= limit]
    if arrived:
        module.move_from(min(arrived, key=lambda attempt: attempt.weight).module)
        return
    least = min(attempts, key=lambda attempt: attempt.bytes)
    if least.bytes < unlimited:
        module.move_from(least.module)


@dataclass(frozen=True)
class _Attempt:
    """Copy of the module at some stage of a road, and the bytes that a device needs for it."""

    module: HloModule
    bytes: int

    @property
    def weight(self) -> float:
        """Return the work of the module as one number, in flops, with bytes converted to flops."""
        cost = module_cost(self.module)
        wire = RecomputeCost(0.0, BYTES_PER_BYTE_SENT * cost.wire_bytes)
        return (RecomputeCost.of(cost.work) + wire).weight


def _go(module: HloModule, limit: int, road: Road) -> _Attempt:
    """Return the first stage of ``road`` that needs at most ``limit`` bytes, else the one with the least lower bound.

    Offsets are assigned only if the lower bound fits the limit, because the assignment takes most of the time.
    """
    copy = clone_module(module)
    stage = best = 0
    least = least_device_bytes(copy)
    for stage, _ in enumerate(_stages(copy, road), 1):
        needed = least_device_bytes(copy)
        if needed <= limit and (found := device_bytes(copy)) <= limit:
            return _Attempt(copy, found)
        if needed < least:
            best, least = stage, needed
    if best < stage:
        # The stages are equal for every copy of a module.
        copy = clone_module(module)
        for _ in islice(_stages(copy, road), best):
            pass
    return _Attempt(copy, device_bytes(copy))


def _stages(module: HloModule, road: Road) -> Iterator[int]:
    """Lower the peak of ``module`` stage by stage. Yields the model's peak in bytes after each stage that lowers it."""
    for way in road:
        fitter = _Fitter(module, way)
        first = goal = fitter.peak
        while goal > 0:
            goal -= max(1, int(first * STAGE_SHARE))
            before = fitter.peak
            reached = fitter.lower(module.entry, goal)
            if fitter.peak < before:
                yield fitter.peak
            if not reached:
                break


@dataclass
class _Fitter:
    """Rematerializers of a module's computations. They are kept from stage to stage, since they know their copies."""

    module: HloModule
    limits: Limits
    _ones: dict[HloComputation, Rematerializer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        facts = op_facts(self.module)
        assert facts is not None
        self._models = ModuleModel(self.module, facts)
        self._models.simulate()

    @property
    def peak(self) -> int:
        """Return the peak of the entry computation in bytes, by the memory model."""
        return self._models.peaks[self.module.entry]

    def lower(self, computation: HloComputation, goal: int) -> bool:
        """Lower the peak of ``computation`` to ``goal`` bytes. Returns whether it reached the goal.

        A callee that runs while more than ``goal`` bytes are live lowers its own peak first, by at most the factor by
        which the caller exceeds the goal. Values that are live in the caller meanwhile are lowered afterwards.
        """
        model = self._models.of(computation)
        needs = model.needs(computation.instructions)
        for need, instruction in zip(needs, computation.instructions, strict=True):
            if need <= goal:
                continue
            for callee in instruction.called_computations:
                peak = self._models.peaks.get(callee, 0)
                if peak:
                    self.lower(callee, max(goal - (need - peak), int(peak * goal / need)))
        one = self._rematerializer(computation)
        one.look()
        one.lower(goal)
        self._models.peaks[computation] = one.peak
        return one.peak <= goal

    def _rematerializer(self, computation: HloComputation) -> Rematerializer:
        """Return the rematerializer of ``computation``, which is created at the first call."""
        if computation not in self._ones:
            make_model = partial(self._models.of, computation)
            self._ones[computation] = Rematerializer(
                computation, make_model, Budget(), self.limits, self._models.facts
            )
        return self._ones[computation]
