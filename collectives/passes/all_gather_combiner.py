"""Join all-gathers of the same devices that do not wait for each other."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import ClassVar

from collectives.passes.all_gather_matching import match_gather
from collectives.passes.combining import CollectiveCombiner, marks
from collectives.passes.groups import known_groups
from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs
from spmd.passes.interface import register_pass
from spmd.shape import ArrayShape


@register_pass
@dataclass(frozen=True)
class AllGatherCombiner(CollectiveCombiner):
    """All-gathers of one set of groups along one dimension in one computation (see CollectiveCombiner).

    Element types may differ: nothing is computed on the way. Without ``by_dimension``, dimensions may differ, too:
    all is gathered along the first one, a new one where members are to stand along another, and moved from there, which
    copies what is gathered.
    """

    name: ClassVar[str] = "all-gather-combiner"
    opcode: ClassVar[Opcode] = Opcode.ALL_GATHER
    by_dimension: bool = True

    def key(self, x: HloInstruction) -> Hashable | None:
        groups = known_groups(x)
        if groups is None:
            return None
        dimension = _dimension(x)
        is_any = not self.by_dimension and (dimension == 0 or match_gather(x) is not None)
        return groups, None if is_any else dimension, marks(x)

    def normalized(
        self, batch: Sequence[HloInstruction], builder: Builder
    ) -> Sequence[HloInstruction]:
        if len({_dimension(x) for x in batch}) == 1:
            return batch
        return [_along_the_first(x, builder) for x in batch]


def _dimension(x: HloInstruction) -> int | None:
    return x.attrs_as(CollectiveAttrs).dimension


def _along_the_first(x: HloInstruction, b: Builder) -> HloInstruction:
    """Replace the all-gather ``x`` by one along a new dimension 0, and move the members back for its users. Returns the
    new one; ``x`` itself if it gathers along dimension 0 already.
    """
    gather = match_gather(x)
    if gather is None or not gather.dimension:
        return x
    d, rank = gather.dimension, len(x.dims)
    part = gather.operand
    attrs = replace(x.attrs_as(CollectiveAttrs), dimension=0)
    shape = ArrayShape(part.array_shape.element_type, (gather.count, *part.dims))
    front = b.reshape(part, (1, *part.dims))
    gathered = b.create(Opcode.ALL_GATHER, (front,), attrs, shape=shape)
    gathered.annotations = x.annotations
    moved = b.transpose(gathered, (*range(1, d + 1), 0, *range(d + 1, rank + 1)))
    b.computation.replace(x, b.reshape(moved, x.dims))
    return gathered
