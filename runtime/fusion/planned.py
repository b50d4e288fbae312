"""Plans of fusions, found once for equal computations: memory scheduling asks for them again and again.

The fused computations of a scheduled module stay as they are, so that their plans are looked up by themselves.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from weakref import WeakKeyDictionary

from runtime.fusion.emitters import Emitted, emitted
from runtime.fusion.refusal import NoEmitterError
from spmd.analysis.structure import computation_form, instruction_form
from spmd.hlo import HloComputation, HloInstruction, Stage

#: A training step has a few hundred different fusions.
_KEPT = 4096
_PLANS: WeakKeyDictionary[HloComputation, Emitted] = WeakKeyDictionary()


def planned(fusion: HloInstruction) -> Emitted:
    """As ``emitted``: the emitter and its plan; NoEmitterError where there is none."""
    fused = fusion.to_apply
    known = _PLANS.get(fused)
    if known is None:
        known = _planned(_Form(fused, _form(fused)))
        remember(fused, known)
    return known


def remember(fused: HloComputation, plan: Emitted) -> None:
    """``plan`` is that of ``fused``, if its module is scheduled."""
    if fused.module is not None and fused.module.stage >= Stage.SCHEDULED:
        _PLANS[fused] = plan


def planned_alone(instruction: HloInstruction) -> Emitted | None:
    """The same of one instruction, as if it were fused alone; None where no emitter takes it."""
    operands = instruction.operands
    read = tuple((operands.index(x), x.shape) for x in operands)
    key = (*instruction_form(instruction, _form), read)
    return _planned_alone(_Form(instruction, key))


class _Form:
    """Equal where the key is. What it is the key of is let go once it is planned."""

    def __init__(self, of: HloComputation | HloInstruction, key: Hashable) -> None:
        self.of: HloComputation | HloInstruction | None = of
        self._key = key
        self._hash = hash(key)

    def emitted(self) -> Emitted:
        """Asked once."""
        of, self.of = self.of, None
        assert of is not None, "a form is planned once"
        return emitted(of)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Form) and self._key == other._key


@lru_cache(maxsize=_KEPT)
def _planned(form: _Form) -> Emitted:
    return form.emitted()


@lru_cache(maxsize=_KEPT)
def _planned_alone(form: _Form) -> Emitted | None:
    try:
        return form.emitted()
    except NoEmitterError:
        return None


def _form(computation: HloComputation) -> Hashable:
    return computation_form(computation, _form)
