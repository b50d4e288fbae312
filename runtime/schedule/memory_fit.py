"""Make a scheduled module fit a memory limit: compute values again until buffer assignment needs no more than that.

The way down does not depend on the limit: stage after stage the peak falls by the same part, and the first stage that
fits is taken. So a limit that another attempt has reached can be met, and a lower one goes further on the same way.

Collectives are repeated only where nothing else brings the peak down any more (weights that are gathered again for the
backward pass, say): that is the second half of the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from runtime.schedule.exact_memory import device_bytes, least_device_bytes, step_facts
from runtime.schedule.module_model import ModuleModel
from runtime.schedule.recompute import Limits
from runtime.schedule.rematerialize import Budget, Rematerializer
from spmd.hlo import HloComputation, HloModule
from spmd.hlo.clone import clone_module

#: Each stage lowers the peak by this part of what it was at first.
STAGE_SHARE = 1 / 32
MOST_LINKS = 24
#: What may be repeated, in this order.
WAYS = (
    Limits(only_cheap=False, most_links=MOST_LINKS),
    Limits(only_cheap=False, most_links=MOST_LINKS, collectives=True),
)


def fit_memory(module: HloModule, limit: int) -> None:
    """Repeat work in a SCHEDULED module until a device needs ``limit`` bytes at most.

    Where that cannot be reached, the module is left with the least memory that was. Modules that the runtime does not
    lower stay as they are.
    """
    if step_facts(module) is None:
        return
    unlimited = device_bytes(module)
    if unlimited <= limit:
        return
    stage, found = _first_that_fits(clone_module(module), limit)
    if found > limit:
        attempt = clone_module(module)
        _take(attempt, stage)
        if device_bytes(attempt) >= unlimited:
            return
    _take(module, stage)


def _first_that_fits(module: HloModule, limit: int) -> tuple[int, int]:
    """Number and bytes of the first stage that needs ``limit`` at most, else of the one whose values need least.

    Values are laid out where they could fit at all: that takes most of the time.
    """
    best, least = 0, least_device_bytes(module)
    for stage, _ in enumerate(_stages(module), 1):
        needed = least_device_bytes(module)
        if needed <= limit and (found := device_bytes(module)) <= limit:
            return stage, found
        if needed < least:
            best, least = stage, needed
    return best, max(least, limit + 1)


def _take(module: HloModule, stage: int) -> None:
    """Carry ``module`` to that stage; they are the same for every copy of a module."""
    for _ in islice(_stages(module), stage):
        pass


def _stages(module: HloModule) -> Iterator[int]:
    """Lower the peak step by step; what it is by the model after each step that did lower it."""
    for way in WAYS:
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
    """A rematerializer for each computation, which knows its copies from stage to stage."""

    module: HloModule
    limits: Limits
    _ones: dict[HloComputation, Rematerializer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        facts = step_facts(self.module)
        assert facts is not None
        self._models = ModuleModel(self.module, facts)
        self._models.simulate()

    @property
    def peak(self) -> int:
        return self._models.peaks[self.module.entry]

    def lower(self, computation: HloComputation, goal: int) -> bool:
        """Bring ``computation`` down to ``goal`` bytes; whether that was reached.

        What it calls at its peak has to give as large a part of its own memory as the caller of its; values that are
        held meanwhile give the rest.
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
