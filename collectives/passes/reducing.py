"""All-reduces and reduce-scatters apart from their operands: the groups, and how values are combined."""

from __future__ import annotations

from collections.abc import Hashable

from collectives.passes.combining import marks
from collectives.passes.groups import known_groups
from spmd.device import ReductionKind
from spmd.device_groups import DeviceGroups
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs
from spmd.ops.reduction import reduction_kind
from spmd.passes.rewrite import is_pinned
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class Reducing:
    """Equal for collectives that differ in their operands alone.

    ``reducer``: the computation where it is no plain reduction, None where ``kind`` says it all. ``marks``: what was
    said to a back end about the instruction.
    """

    groups: DeviceGroups
    kind: ReductionKind | None
    reducer: HloComputation | None
    element_type: PrimitiveType
    dimension: int | None
    marks: Hashable


def reducing(x: HloInstruction) -> Reducing | None:
    """Match the all-reduce or reduce-scatter ``x``. Returns None if it must stay or its devices are unknown."""
    attrs = x.attrs_as(CollectiveAttrs)
    if is_pinned(x) or attrs.constrain_layout:
        return None
    groups = known_groups(x)
    if groups is None:
        return None
    kind = reduction_kind(x.to_apply)
    return Reducing(
        groups,
        kind,
        x.to_apply if kind is None else None,
        x.to_apply.root.array_shape.element_type,
        attrs.dimension,
        marks(x),
    )
