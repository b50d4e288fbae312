"""An all-reduce of which each device keeps its own slice becomes a reduce-scatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from collectives.passes.device_scalars import device_count, values_by_device
from collectives.passes.groups import Groups, among_devices, common_size, covers
from collectives.passes.reducing import reducing
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DynamicSliceAttrs
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at, is_pinned, replace_and_prune

#: What may stand between all-reduce and slice: elements elsewhere, alike on every device.
_MOVES = frozenset({Opcode.RESHAPE, Opcode.BITCAST, Opcode.TRANSPOSE, Opcode.COPY})


@register_pass
@dataclass(frozen=True)
class ReduceScatterCreator(InstructionPass):
    """sum = f32[8] all-reduce(x)                               =>  part = f32[2] reduce-scatter(x), dimensions={0}
    part = f32[2] dynamic-slice(sum, 2 * place in the group)

    Nobody may want anything else of the sum: all its users, through reshapes, transposes and conversions, are such
    slices, of one dimension and all alike. Where a slice begins may be computed in any way from the device's number, as
    long as the members of each group take all the parts; they stand in the group in the order of their parts, so that
    floats may be added in another one.
    """

    name: ClassVar[str] = "reduce-scatter-creator"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.ALL_REDUCE,)

    def editor(self, module: HloModule) -> Edit:
        scope, effects = ModuleScope(module), SideEffects()

        def edit(x: HloInstruction) -> bool:
            scattered = match(x, device_count(module))
            if scattered is None:
                return False
            b = builder_at(x, scope)
            part = scattered.reduce_scatter(x, b)
            for kept in scattered.slices:
                replace_and_prune(kept.slice, kept.converted(part, b), effects)
            return True

        return edit


@dataclass(frozen=True)
class _Kept:
    """A slice of an all-reduce's result. ``steps``: what stands between the two, the first one first."""

    slice: HloInstruction
    steps: tuple[HloInstruction, ...]

    @property
    def moves(self) -> tuple[HloInstruction, ...]:
        return tuple(step for step in self.steps if step.opcode in _MOVES)

    def converted(self, part: HloInstruction, b: Builder) -> HloInstruction:
        """``part``, with the conversions that stand between all-reduce and slice."""
        for step in self.steps:
            if step.opcode is Opcode.CONVERT:
                part = b.convert(part, step.array_shape.element_type)
        return part


@dataclass(frozen=True)
class _Scattered:
    """What the slices of an all-reduce's result agree in; ``groups`` in the order of the parts that members keep."""

    slices: Sequence[_Kept]
    dimension: int
    groups: Groups

    def reduce_scatter(self, x: HloInstruction, b: Builder) -> HloInstruction:
        """Of what the all-reduce ``x`` sums, moved as the slices have it."""
        value = x.operand(0)
        for step in self.slices[0].moves:
            shape = step.array_shape.with_element_type(value.array_shape.element_type)
            value = b.computation.add(step.clone(shape, (value,)))
        attrs = among_devices(x, self.groups, b.scope, dimension=self.dimension)
        part = b.create(Opcode.REDUCE_SCATTER, (value,), attrs, calls=x.called_computations)
        part.annotations = x.annotations
        return part


def match(x: HloInstruction, devices: int) -> _Scattered | None:
    """The all-reduce ``x`` as one of which only slices are wanted, another one by each member of a group."""
    what = reducing(x)
    if what is None or what.kind is None or x.num_operands != 1:
        return None
    slices = _slices_of(x, ())
    if not slices or common_size(what.groups) == 1 or not covers(what.groups, devices):
        return None
    ways = {(kept.moves, _scattering(kept.slice, what.groups)) for kept in slices}
    if len(ways) != 1:
        return None
    ((_, way),) = ways
    return None if way is None else _Scattered(slices, *way)


def _slices_of(x: HloInstruction, steps: tuple[HloInstruction, ...]) -> list[_Kept] | None:
    """The slices that all users of ``x`` come to; None where one comes to anything else."""
    if x.is_root:
        return None
    found: list[_Kept] = []
    for user in x.users:
        if is_pinned(user):
            return None
        if user.opcode is Opcode.DYNAMIC_SLICE and user.operands.count(x) == 1:
            found.append(_Kept(user, steps))
        elif user.opcode in _MOVES or user.opcode is Opcode.CONVERT:
            behind = _slices_of(user, (*steps, user))
            if behind is None:
                return None
            found.extend(behind)
        else:
            return None
    return found


def _scattering(x: HloInstruction, groups: Groups) -> tuple[int, Groups] | None:
    """The dimension that the slice ``x`` cuts, and the groups in the order in which their members' slices lie there."""
    sizes, whole = x.attrs_as(DynamicSliceAttrs).sizes, x.operand(0).dims
    cut = [d for d in range(len(whole)) if sizes[d] != whole[d]]
    members = common_size(groups)
    if len(cut) != 1 or members is None or sizes[cut[0]] * members != whole[cut[0]]:
        return None
    (d,) = cut
    starts = values_by_device(x.operand(1 + d))
    if starts is None:
        return None
    places = [min(max(int(start), 0), whole[d] - sizes[d]) / sizes[d] for start in starts]
    ordered = tuple(tuple(sorted(group, key=lambda member: places[member])) for group in groups)
    if any([places[member] for member in group] != list(range(members)) for group in ordered):
        return None
    return d, ordered
