"""Make a scheduled module fit a memory limit that buffer assignment confirms: recompute values, or compute them in
pieces so that large intermediate values never exist entirely.

Two roads are tried, with pieces and without. If both reach the limit, the one that repeats less work wins. The stages
of a road do not depend on the limit: each stage lowers the peak by the same part, and the first stage that fits is
taken. Therefore a limit that another attempt has reached can be met, and a lower one goes further on the same way.

Collectives are repeated only if nothing else lowers the peak any more (for example weights that are gathered again for
the backward pass): that is the second half of a road.
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

#: Each stage lowers the peak by this part of the initial peak.
STAGE_SHARE = 1 / 32
MOST_LINKS = 24
#: Limits on what may be repeated, tried in this order.
Road: TypeAlias = tuple[Limits, ...]
REPEATING: Road = (
    Limits(only_cheap=False, most_links=MOST_LINKS),
    Limits(only_cheap=False, most_links=MOST_LINKS, collectives=True),
)
SPLITTING: Road = tuple(replace(way, splits=True) for way in REPEATING)


def fit_memory(
    module: HloModule, limit: int, roads: Sequence[Road] = (REPEATING, SPLITTING)
) -> None:
    """Repeat and split work in a SCHEDULED module until a device needs ``limit`` bytes at most.

    If the limit cannot be reached, the module gets the least memory that was found. Modules that the runtime cannot
    lower stay unchanged.
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
    """Copy of the module at the end of a road, and the bytes that a device needs for it."""

    module: HloModule
    bytes: int

    @property
    def weight(self) -> float:
        """The work of the module, in flops."""
        cost = module_cost(self.module)
        wire = RecomputeCost(0.0, BYTES_PER_BYTE_SENT * cost.wire_bytes)
        return (RecomputeCost.of(cost.work) + wire).weight


def _go(module: HloModule, limit: int, road: Road) -> _Attempt:
    """Go to the first stage that needs ``limit`` at most, else to the one whose values need least.

    Offsets are assigned only if the lower bound fits, because that takes most of the time.
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
        # Stages are the same for every copy of a module.
        copy = clone_module(module)
        for _ in islice(_stages(copy, road), best):
            pass
    return _Attempt(copy, device_bytes(copy))


def _stages(module: HloModule, road: Road) -> Iterator[int]:
    """Lower the peak stage by stage. Yields the model's peak after each stage that lowered it."""
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
    """Rematerializers of a module's computations, which remember their copies from stage to stage."""

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
        return self._models.peaks[self.module.entry]

    def lower(self, computation: HloComputation, goal: int) -> bool:
        """Lower the peak of ``computation`` to ``goal`` bytes. Returns whether that was reached.

        A callee that runs at the peak must reduce its own memory by the same factor as the caller. Values that are live
        meanwhile must give the rest.
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
        if computation not in self._ones:
            make_model = partial(self._models.of, computation)
            self._ones[computation] = Rematerializer(
                computation, make_model, Budget(), self.limits, self._models.facts
            )
        return self._ones[computation]
