"""Kinds of kernels: what all kernels that say the same in other names have in common, found once.

Layers of a model repeat, and so do the kernels that a plan tries: a kind is priced once, and an emitter is asked for it
once. Two kernels are of one kind if their instructions, numbered as they are met from the results, say the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from runtime.fusion.element_graph import MAX_LEAVES, MAX_STEPS, is_element_operation
from runtime.fusion.emitters import LOOP, Emitted, emitted_region, emitter_of
from runtime.fusion.flat_cost import flat_cost
from runtime.fusion.loop_cost import loop_cost, written_block
from runtime.fusion.prices import KernelCost, Prices
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.row_cost import row_cost
from runtime.fusion.row_fusion import RowFusion
from runtime.fusion.row_region import RowRegion, row_region
from spmd.analysis.structure import StructuralKeys, instruction_form
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.opdef import OPS

#: An ordered set of instructions.
Instructions: TypeAlias = Mapping[HloInstruction, None]


@dataclass(eq=False)
class KernelKind:
    """``roots``, ``members``, ``inputs``: of the first kernel of this kind that was met. number: among all kinds.

    Values of a kernel are its ``size`` members, then its inputs, as they are met from its roots; ``root_places`` says
    which of them these are.

    reduces: whether it has reductions.
    straight: whether strides say how everything in it is read, however it is put together: it has no reshapes, no parts
    that are chosen by index, and results of one shape. flat: whether each element is computed of those at its own place
    and of scalars.
    """

    number: int
    roots: tuple[HloInstruction, ...]
    members: tuple[HloInstruction, ...]
    inputs: tuple[HloInstruction, ...]
    root_places: tuple[int, ...]
    reduces: bool
    straight: bool
    flat: bool
    prices: Prices

    @cached_property
    def cost(self) -> KernelCost | None:
        """Of one execution; None of a kernel with reductions along different rows."""
        if self.flat:
            return flat_cost(self.roots, self.members, self.inputs, self.prices)
        if not self.reduces:
            return loop_cost(self.roots, self.inputs, self.prices)
        return None if self.region is None else row_cost(self.region, self.prices)

    @cached_property
    def region(self) -> RowRegion | None:
        """Of a kernel with reductions, if they go along the same rows."""
        if not self.reduces:
            return None
        try:
            region = row_region(self.roots, {x: n for n, x in enumerate(self.inputs)})
            region.walks()
        except NoEmitterError:
            return None
        return region

    @cached_property
    def emitter(self) -> str | None:
        """Who makes it; None if nobody does. Of straight loops of moderate size that is known without a plan."""
        if self.straight and not self.reduces:
            cost = self.cost
            if cost is not None and cost.reads <= MAX_LEAVES and cost.values <= MAX_STEPS:
                return LOOP
        return None if self.emitted is None else self.emitted.emitter

    @cached_property
    def overwrites(self) -> frozenset[tuple[int, int]]:
        """As plans have it: pairs (result, input) where one may be written over the other."""
        if self.flat and self.emitter == LOOP:
            return frozenset(
                (i, n)
                for i, root in enumerate(self.roots)
                for n, x in enumerate(self.inputs)
                if x.dims == root.dims and x.shape.byte_size == root.shape.byte_size
            )
        return frozenset(() if self.emitted is None else self.emitted.plan.overwrites)

    @cached_property
    def scratch_bytes(self) -> int:
        """What it writes for itself alone."""
        if not self.reduces or self.emitted is None:
            return 0
        plan = self.emitted.plan
        assert isinstance(plan, RowFusion), "it has reductions"
        return sum(shape.byte_size for shape in plan.scratch)

    @cached_property
    def points(self) -> int:
        """How many indices it goes over."""
        if self.region is not None:
            return self.region.points
        return written_block(self.roots[0]).array_shape.num_elements

    @cached_property
    def emitted(self) -> Emitted | None:
        """Who makes it, and how; None if nobody does."""
        try:
            return emitted_region(self.roots, {x: n for n, x in enumerate(self.inputs)})
        except NoEmitterError:
            return None


@dataclass
class KernelKinds:
    """All kinds that were met while the kernels of one module are planned, whose instructions stay as they are."""

    prices: Prices
    _keys: StructuralKeys = field(default_factory=StructuralKeys)
    _number_of: dict[Hashable, int] = field(default_factory=dict)
    _members: dict[HloInstruction, int] = field(default_factory=dict)
    _inputs: dict[HloInstruction, int] = field(default_factory=dict)
    _kinds: dict[Hashable, KernelKind] = field(default_factory=dict)
    _alone: dict[Hashable, bool] = field(default_factory=dict)

    def kind(
        self, roots: tuple[HloInstruction, ...], members: Instructions, inputs: Instructions
    ) -> KernelKind:
        """Of a kernel of ``roots``, which reach ``members`` and then ``inputs`` in this order."""
        place = {x: n for n, x in enumerate(inputs, len(members))}
        place.update(zip(members, range(len(members)), strict=True))
        says: list[int] = []
        for x in members:
            says.append(self._member(x))
            says += [place[operand] for operand in x.operands]
        form = (
            tuple(says),
            tuple(map(self._input, inputs)),
            tuple(place[root] for root in roots),
        )
        kind = self._kinds.get(form)
        if kind is None:
            kind = self._kinds[form] = KernelKind(
                len(self._kinds),
                roots,
                tuple(members),
                tuple(inputs),
                form[-1],
                any(x.opcode is Opcode.REDUCE for x in members),
                all(root.dims == roots[0].dims for root in roots)
                and all(map(_is_straight, members)),
                all(_is_flat(x, roots[0].dims) for x in members)
                and all(x.dims in ((), roots[0].dims) for x in inputs),
                self.prices,
            )
        return kind

    def has_emitter(self, x: HloInstruction) -> bool:
        """Of a kernel of this instruction alone."""
        operands = x.operands
        form = (self._member(x), *map(self._input, operands), *map(operands.index, operands))
        known = self._alone.get(form)
        if known is None:
            known = self._alone[form] = is_element_operation(x) or emitter_of(x) is not None
        return known

    def _member(self, x: HloInstruction) -> int:
        """Equal for instructions that say the same of as many operands."""
        number = self._members.get(x)
        if number is None:
            form = (*instruction_form(x, self._keys.key), x.num_operands)
            number = self._members[x] = self._number(form)
        return number

    def _input(self, x: HloInstruction) -> int:
        number = self._inputs.get(x)
        if number is None:
            number = self._inputs[x] = self._number(x.shape)
        return number

    def _number(self, key: Hashable) -> int:
        return self._number_of.setdefault(key, len(self._number_of))


#: Strides say what these show of anything that strides can tell.
_STRAIGHT = frozenset(
    {
        Opcode.BITCAST_CONVERT,
        Opcode.BROADCAST,
        Opcode.CONSTANT,
        Opcode.COPY,
        Opcode.IOTA,
        Opcode.REVERSE,
        Opcode.SLICE,
        Opcode.TRANSPOSE,
    }
)


def _is_straight(x: HloInstruction) -> bool:
    """Of an instruction that has an emitter."""
    if x.opcode in (Opcode.RESHAPE, Opcode.BITCAST):
        wide = [[n for n in one.dims if n != 1] for one in (x, x.operand(0))]
        return wide[0] == wide[1]
    return x.opcode in _STRAIGHT or OPS[x.opcode].elementwise


def _is_flat(x: HloInstruction, dims: tuple[int, ...]) -> bool:
    """Elementwise over ``dims``, a scalar or a scalar everywhere."""
    if x.opcode is Opcode.BROADCAST:
        return x.dims == dims and not x.operand(0).dims
    elementwise = x.opcode is Opcode.CONSTANT or OPS[x.opcode].elementwise
    return elementwise and x.dims in ((), dims)
