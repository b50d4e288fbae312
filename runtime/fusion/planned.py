"""Plans of fusions, found once for equal fused computations: memory scheduling asks for them again and again."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from runtime.fusion.emitters import Emitted, emitted
from spmd.analysis.structure import canonical_order
from spmd.hlo import HloComputation, HloInstruction

#: A training step has a few hundred different fusions.
_KEPT = 4096


def planned(fusion: HloInstruction) -> Emitted:
    """As ``emitted``: the emitter and its plan; NoEmitterError where there is none."""
    return _planned(_Form(fusion.to_apply))


class _Form:
    """Equal for computations that say the same in other names. The computation itself is let go once it is planned."""

    def __init__(self, computation: HloComputation) -> None:
        self.computation: HloComputation | None = computation
        self._key = _form(computation)
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Form) and self._key == other._key


@lru_cache(maxsize=_KEPT)
def _planned(form: _Form) -> Emitted:
    computation, form.computation = form.computation, None
    assert computation is not None, "a form is planned once"
    return emitted(computation)


def _form(computation: HloComputation) -> Hashable:
    number: dict[HloInstruction, int] = {}
    parts: list[Hashable] = []
    for n, x in enumerate(canonical_order(computation)):
        number[x] = n
        callees = tuple(_form(callee) for callee in x.called_computations)
        parts.append((x.opcode, x.shape, x.attrs, tuple(number[o] for o in x.operands), callees))
    return number[computation.root], tuple(parts)
