"""Cache of fusion plans for equal computations, which memory scheduling requests repeatedly.

The fused computations of a scheduled module do not change, so their plans are also looked up by identity.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from weakref import WeakKeyDictionary

from runtime.fusion.emitters import Emitted, emitted
from runtime.fusion.refusal import NoEmitterError
from spmd.analysis.structure import computation_key, instruction_key
from spmd.hlo import HloComputation, HloInstruction, Stage

#: Capacity of the caches in plans. A training step has a few hundred different fusions.
_CAPACITY = 4096
_PLANS: WeakKeyDictionary[HloComputation, Emitted] = WeakKeyDictionary()


def cached_plan(fusion: HloInstruction) -> Emitted:
    """Return the emitter and plan of ``fusion``, as ``emitted`` does. Raises NoEmitterError if there is none."""
    fused = fusion.to_apply
    known = _PLANS.get(fused)
    if known is None:
        known = _plan_of(_StructuralKey(fused, _structural_key(fused)))
        store(fused, known)
    return known


def store(fused: HloComputation, plan: Emitted) -> None:
    """Store ``plan`` as that of the computation ``fused``, if its module is scheduled."""
    if fused.module is not None and fused.module.stage >= Stage.SCHEDULED:
        _PLANS[fused] = plan


def cached_plan_alone(instruction: HloInstruction) -> Emitted | None:
    """Return the emitter and plan of ``instruction`` as if it were fused alone, or None if it has no emitter."""
    operands = instruction.operands
    read = tuple((operands.index(x), x.shape) for x in operands)
    key = (*instruction_key(instruction, _structural_key), read)
    return _plan_alone_of(_StructuralKey(instruction, key))


class _StructuralKey:
    """Structural key of a computation or an instruction, which the key references until it has been planned."""

    def __init__(self, of: HloComputation | HloInstruction, key: Hashable) -> None:
        self.of: HloComputation | HloInstruction | None = of
        self._key = key
        self._hash = hash(key)

    def emitted(self) -> Emitted:
        """Plan the computation or instruction. It must be called at most once."""
        of, self.of = self.of, None
        assert of is not None, "a key is planned once"
        return emitted(of)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _StructuralKey) and self._key == other._key


@lru_cache(maxsize=_CAPACITY)
def _plan_of(key: _StructuralKey) -> Emitted:
    """Return the plan of the computation with ``key``."""
    return key.emitted()


@lru_cache(maxsize=_CAPACITY)
def _plan_alone_of(key: _StructuralKey) -> Emitted | None:
    """Return the plan of the instruction with ``key``, or None if it has no emitter."""
    try:
        return key.emitted()
    except NoEmitterError:
        return None


def _structural_key(computation: HloComputation) -> Hashable:
    """Return a key that is equal for computations of equal structure."""
    return computation_key(computation, _structural_key)
