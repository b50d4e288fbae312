"""Combiners: several collectives of one kind become one with all their operands."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import field
from typing import ClassVar, Final

from collectives.passes.dependencies import Dependencies
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs, TupleIndexAttrs
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.rewrite import builder_at, is_pinned
from spmd.shape import Shape, TupleShape

#: Largest number of combined collectives of one key that are tried for a further collective, so that long chains take
#: linear time.
_LOOKED_AT: Final = 64


@dataclass(frozen=True)
class CollectiveCombiner(FueledPass):
    """A pass that combines collectives of ``opcode`` with equal ``key`` that do not depend on each other, in one
    computation.

        a = f32[4] all-reduce(x)        both = (f32[4], f32[2]) all-reduce(x, y)
        b = f32[2] all-reduce(y)    =>  a = get-tuple-element(both), index=0
                                        b = get-tuple-element(both), index=1

    They are visited in post-order, as their operands may be ready, and each joins the first of the earlier ones that
    has room for it. Every result keeps its bits: the groups and the order of their members are part of the key.

    ``max_bytes`` (operands or results, whichever are more) and ``max_operands`` bound what becomes one; a single
    collective may be larger.
    """

    opcode: ClassVar[Opcode]
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)
    max_bytes: int = 64 << 20
    max_operands: int = 256

    @abstractmethod
    def key(self, x: HloInstruction) -> Hashable | None:
        """Return a value that is equal for collectives that differ in their operands only; None for one that stays as
        it is.
        """

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        scope = ModuleScope(module)
        changed = False
        for computation in module.computations_post_order():
            for batch in fuel.enough_for(self._batches(computation)):
                builder = builder_at(batch[0], scope)
                combine(self.normalized(batch, builder), builder)
                changed = True
        return changed

    def normalized(
        self, batch: Sequence[HloInstruction], builder: Builder
    ) -> Sequence[HloInstruction]:
        """Return instructions that stand for ``batch`` and differ in their operands only."""
        return batch

    def _batches(self, computation: HloComputation) -> list[list[HloInstruction]]:
        """Return lists of two or more collectives, each to be combined into one."""
        order, effects = computation.post_order(), SideEffects()
        keys = {
            x: key
            for x in order
            if x.opcode is self.opcode
            and not is_pinned(x)
            and not effects.of(x)
            and (key := self.key(x)) is not None
        }
        dependencies = Dependencies(order, list(keys))
        batches: dict[Hashable, list[_Batch]] = {}
        for x, key in keys.items():
            open_batches = batches.setdefault(key, [])
            for batch in open_batches[-_LOOKED_AT:]:
                if batch.has_room(x, self) and dependencies.may_join(batch.members[0], x):
                    dependencies.join(batch.members[0], x)
                    batch.add(x)
                    break
            else:
                open_batches.append(_Batch.of(x))
        return [
            b.members
            for open_batches in batches.values()
            for b in open_batches
            if len(b.members) > 1
        ]


@dataclass
class _Batch:
    members: list[HloInstruction] = field(default_factory=list)
    bytes: int = 0
    operands: int = 0

    @staticmethod
    def of(x: HloInstruction) -> _Batch:
        batch = _Batch()
        batch.add(x)
        return batch

    def add(self, x: HloInstruction) -> None:
        self.members.append(x)
        self.bytes += moved_bytes(x)
        self.operands += x.num_operands

    def has_room(self, x: HloInstruction, limits: CollectiveCombiner) -> bool:
        return (
            self.bytes + moved_bytes(x) <= limits.max_bytes
            and self.operands + x.num_operands <= limits.max_operands
        )


def moved_bytes(x: HloInstruction) -> int:
    """Return the bytes of its operands or of its results, whichever are more."""
    return max(x.shape.byte_size, sum(operand.shape.byte_size for operand in x.operands))


def marks(x: HloInstruction) -> Hashable:
    """Return a collective's settings for back ends: frontend attributes, configuration, mode."""
    mode = x.attrs.mode if isinstance(x.attrs, CollectiveAttrs) else ""
    return x.annotations.frontend_attributes, x.annotations.backend_config, mode


def combine(collectives: Sequence[HloInstruction], builder: Builder) -> HloInstruction:
    """Replace several collectives that differ in their operands only by one. Returns it."""
    first = collectives[0]
    results = tuple(shape for x in collectives for shape in result_shapes(x))
    joined = first.clone(TupleShape(results), [o for x in collectives for o in x.operands])
    builder.computation.add(joined)
    at = 0
    for x in collectives:
        parts = [builder.get_tuple_element(joined, at + i) for i in range(x.num_operands)]
        at += x.num_operands
        replace_by_parts(x, parts, builder)
    return joined


def result_shapes(x: HloInstruction) -> tuple[Shape, ...]:
    """Return the shape of the result of each operand."""
    return x.shape.elements if isinstance(x.shape, TupleShape) else (x.shape,)


def replace_by_parts(x: HloInstruction, parts: Sequence[HloInstruction], builder: Builder) -> None:
    """Make users of each result of the collective ``x`` use its part of ``parts``, and remove ``x``."""
    if not isinstance(x.shape, TupleShape):
        builder.computation.replace(x, parts[0])
        return
    for user in x.users:
        if user.opcode is Opcode.GET_TUPLE_ELEMENT and not is_pinned(user):
            builder.computation.replace(user, parts[user.attrs_as(TupleIndexAttrs).index])
    if x.num_users or x.is_root:
        x.replace_all_uses_with(builder.tuple(parts))
    builder.computation.remove(x)
