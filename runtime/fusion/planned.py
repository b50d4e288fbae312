"""Cache of fusion plans for equal computations: memory scheduling requests them repeatedly.

The fused computations of a scheduled module do not change, so their plans are looked up by identity.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from weakref import WeakKeyDictionary

from runtime.fusion.emitters import Emitted, emitted
from runtime.fusion.refusal import NoEmitterError
from spmd.analysis.structure import computation_form, instruction_form
from spmd.hlo import HloComputation, HloInstruction, Stage

#: Capacity. A training step has a few hundred different fusions.
_KEPT = 4096
_PLANS: WeakKeyDictionary[HloComputation, Emitted] = WeakKeyDictionary()


def planned(fusion: HloInstruction) -> Emitted:
    """Return the emitter and its plan, as ``emitted`` does. Raises NoEmitterError if there is none."""
    fused = fusion.to_apply
    known = _PLANS.get(fused)
    if known is None:
        known = _planned(_Form(fused, _form(fused)))
        remember(fused, known)
    return known


def remember(fused: HloComputation, plan: Emitted) -> None:
    """Store ``plan`` for ``fused``, if its module is scheduled."""
    if fused.module is not None and fused.module.stage >= Stage.SCHEDULED:
        _PLANS[fused] = plan


def planned_alone(instruction: HloInstruction) -> Emitted | None:
    """Return the plan of one instruction, as if it were fused alone; None if it has no emitter."""
    operands = instruction.operands
    read = tuple((operands.index(x), x.shape) for x in operands)
    key = (*instruction_form(instruction, _form), read)
    return _planned_alone(_Form(instruction, key))


class _Form:
    """Cache key, compared by ``key``. It releases the object that it stands for once this is planned."""

    def __init__(self, of: HloComputation | HloInstruction, key: Hashable) -> None:
        self.of: HloComputation | HloInstruction | None = of
        self._key = key
        self._hash = hash(key)

    def emitted(self) -> Emitted:
        """Plan the object. It must be called once only."""
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
