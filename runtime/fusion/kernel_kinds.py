"""Kernel kinds: equivalence classes of kernels with equal structure.

Layers of a model repeat, and so do the kernels that a plan tries. The cost of each kind is computed once, and its
emitter is chosen once. Two kernels are of one kind if their instructions, numbered in order of discovery from the
results, are equal.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TypeAlias

from runtime.fusion.cost.cost_model import CostModel, KernelCost
from runtime.fusion.cost.flat_cost import flat_cost
from runtime.fusion.cost.loop_cost import LoopSpaces, written_block
from runtime.fusion.cost.row_cost import row_cost
from runtime.fusion.element_graph import MAX_LEAVES, MAX_STEPS, post_order
from runtime.fusion.element_operations import is_element_operation, is_elementwise, renames
from runtime.fusion.emitters import (
    LOOP,
    Emitted,
    as_loop_if_short,
    emitted_region,
    emitter_of,
    has_short_rows,
)
from runtime.fusion.loop_fusion import has_small_loop
from runtime.fusion.loop_parts import MAX_PIECES
from runtime.fusion.piecewise import is_piecewise
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.row_fusion import RowFusionPlan
from runtime.fusion.row_region import RowRegion, row_region
from runtime.fusion.view_path import view_op
from spmd.analysis.structure import StructuralKeys, instruction_key
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import PadAttrs
from spmd.ops.opdef import OPS

#: An ordered set of instructions.
Instructions: TypeAlias = Mapping[HloInstruction, None]


@dataclass
class KernelCosts:
    """Costs of the kernels of one module, which must not change while they are computed."""

    model: CostModel
    _spaces: LoopSpaces = field(init=False)

    def __post_init__(self) -> None:
        self._spaces = LoopSpaces(self.model)

    def of_loop(
        self,
        roots: Sequence[HloInstruction],
        members: Sequence[HloInstruction],
        inputs: Collection[HloInstruction],
        *,
        flat: bool,
    ) -> KernelCost:
        """Return the cost of a kernel without reductions.

        ``members`` lists the instructions that it computes, operands first. ``flat`` says that each element is computed
        from scalars and from elements at its own index.
        """
        if flat:
            return flat_cost(roots, members, inputs, self.model)
        return self._spaces.cost(roots, members, inputs)


@dataclass(eq=False)
class KernelKind:
    """Kernel kind, represented by the first kernel of its kind: its ``roots``, ``members`` and ``inputs``.

    The values of a kernel are its members followed by its inputs, in order of discovery from its roots.
    ``root_indices`` are the indices of the roots among the values, ``number`` is the index among all kinds, and
    ``known_cost`` the cost if it was computed before the kind was made.
    """

    number: int
    roots: tuple[HloInstruction, ...]
    members: tuple[HloInstruction, ...]
    inputs: tuple[HloInstruction, ...]
    root_indices: tuple[int, ...]
    costs: KernelCosts
    known_cost: KernelCost | None = None

    @cached_property
    def cost(self) -> KernelCost | None:
        """Return the cost of one execution, or None if the kernel has reductions along different rows."""
        if self.known_cost is not None:
            return self.known_cost
        if not self.reduces:
            return self.costs.of_loop(self.roots, self.order, self.inputs, flat=self.flat)
        return None if self.region is None else row_cost(self.region, self.costs.model)

    @cached_property
    def order(self) -> list[HloInstruction]:
        """Return the members, operands first."""
        inputs = dict.fromkeys(self.inputs, 0)
        return [x for x in post_order(self.roots, inputs) if x not in inputs]

    @cached_property
    def reduces(self) -> bool:
        """Return whether a member is a reduction."""
        return any(x.opcode is Opcode.REDUCE for x in self.members)

    @cached_property
    def straight(self) -> bool:
        """Return whether strides express all reads in each piece of the loop.

        This holds if there is no reshape, all results have one shape, and the edges of pieces do not move at run time.
        """
        dims = self.roots[0].dims
        return (
            all(root.dims == dims for root in self.roots)
            and all(map(_is_straight, self.members))
            and not self._has_moving_edges()
        )

    def _has_moving_edges(self) -> bool:
        """Return whether a dynamic-slice reads a concatenation or a pad, which moves their edges at run time."""
        if not any(map(is_piecewise, self.members)):
            return False
        moved: set[HloInstruction] = set()
        for x in reversed(self.order):
            if x in moved and is_piecewise(x):
                return True
            if x in moved or x.opcode is Opcode.DYNAMIC_SLICE:
                moved.update(x.operands)
        return False

    @cached_property
    def flat(self) -> bool:
        """Return whether each element is computed from scalars and from elements at its own index."""
        dims = self.roots[0].dims
        return all(x.dims in ((), dims) for x in self.inputs) and all(
            _is_flat(x, dims) for x in self.members
        )

    @cached_property
    def region(self) -> RowRegion | None:
        """Return the row region of a kernel whose reductions all reduce the same rows, or None."""
        if not self.reduces:
            return None
        try:
            return row_region(*self._region)
        except NoEmitterError:
            return None

    @cached_property
    def emitter(self) -> str | None:
        """Return the emitter's name, or None if there is none. A loop of moderate size needs no plan for this."""
        if not self.reduces and (self._has_straight_loop() or has_small_loop(*self._region)):
            return LOOP
        return None if self.emitted is None else self.emitted.emitter

    def _has_straight_loop(self) -> bool:
        """Return whether the kernel certainly is a loop within the limits of its emitter, without a plan."""
        cost = self.cost
        return (
            self.straight
            and cost is not None
            and cost.reads <= MAX_LEAVES
            and cost.values <= MAX_STEPS
            and cost.loops <= MAX_PIECES
        )

    @property
    def _region(self) -> tuple[tuple[HloInstruction, ...], dict[HloInstruction, int]]:
        """Return the roots, and the number of each input."""
        return self.roots, {x: n for n, x in enumerate(self.inputs)}

    @cached_property
    def overwrites(self) -> frozenset[tuple[int, int]]:
        """Return the pairs (result, input) of which the kernel may write the result over the memory of the input."""
        if self.straight and self.emitter == LOOP:
            moved = self._moved()
            return frozenset(
                (i, n)
                for i, root in enumerate(self.roots)
                for n, x in enumerate(self.inputs)
                if x not in moved
                and x.array_shape.num_elements == root.array_shape.num_elements
                and x.shape.byte_size == root.shape.byte_size
            )
        return frozenset(() if self.emitted is None else self.emitted.plan.overwrites)

    def _moved(self) -> set[HloInstruction]:
        """Return the values that a loop reads at other row-major positions than that of the element it computes."""
        moved: set[HloInstruction] = set()
        for x in reversed(self.order):
            view = view_op(x)
            keeps_order = (
                is_elementwise(x.opcode) or renames(x) if view is None else view.keeps_order
            )
            if x in moved or not keeps_order:
                moved.update(x.operands)
            else:
                moved.update(y for y in x.operands if y.dims != x.dims and view is None)
        return moved

    @cached_property
    def scratch_bytes(self) -> int:
        """Return the bytes of scratch memory that one execution needs."""
        if not self.reduces or self.emitted is None:
            return 0
        plan = self.emitted.plan
        assert isinstance(plan, RowFusionPlan), "it has reductions"
        return sum(shape.byte_size for shape in plan.fusion.scratch)

    @cached_property
    def points(self) -> int:
        """Return the number of indices that the kernel iterates over."""
        if self.region is not None:
            return self.region.points
        return written_block(self.roots[0]).array_shape.num_elements

    @cached_property
    def emitted(self) -> Emitted | None:
        """Return the emitter and its plan.

        Returns None if there is no emitter, or if a kernel of several results would iterate over rows of so few
        elements that several loops are faster.
        """
        try:
            found = emitted_region(*self._region)
        except NoEmitterError:
            return None
        has_several = len(self.roots) > 1
        if has_several and has_short_rows(as_loop_if_short(found, *self._region)):
            return None
        return found


@dataclass
class KernelKinds:
    """Cache of the kernel kinds of one module, which must not change while its kernels are planned."""

    costs: KernelCosts
    _keys: StructuralKeys = field(default_factory=StructuralKeys)
    _number_of: dict[Hashable, int] = field(default_factory=dict)
    _members: dict[HloInstruction, int] = field(default_factory=dict)
    _inputs: dict[HloInstruction, int] = field(default_factory=dict)
    _kinds: dict[Hashable, KernelKind] = field(default_factory=dict)
    _alone: dict[Hashable, bool] = field(default_factory=dict)

    def kind(
        self,
        roots: tuple[HloInstruction, ...],
        members: Instructions,
        inputs: Instructions,
        cost: KernelCost | None = None,
    ) -> KernelKind:
        """Return the kind of the kernel that computes ``roots``.

        ``members`` and ``inputs`` must be in the order in which a traversal from the roots discovers them. ``cost`` is
        the kernel's cost if the caller knows it.
        """
        index_of = {x: n for n, x in enumerate(inputs, len(members))}
        index_of.update(zip(members, range(len(members)), strict=True))
        says: list[int] = []
        for x in members:
            says.append(self._member(x))
            says += [index_of[operand] for operand in x.operands]
        key = (
            tuple(says),
            tuple(map(self._input, inputs)),
            tuple(index_of[root] for root in roots),
        )
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = KernelKind(
                len(self._kinds),
                roots,
                tuple(members),
                tuple(inputs),
                key[-1],
                self.costs,
                cost,
            )
        return kind

    def has_emitter(self, x: HloInstruction) -> bool:
        """Return whether an emitter can compute ``x`` alone from its operands."""
        operands = x.operands
        key = (self._member(x), *map(self._input, operands), *map(operands.index, operands))
        known = self._alone.get(key)
        if known is None:
            known = self._alone[key] = is_element_operation(x) or emitter_of(x) is not None
        return known

    def _member(self, x: HloInstruction) -> int:
        """Return a number that is the same for instructions with equal attributes, types and operand counts."""
        number = self._members.get(x)
        if number is None:
            key = (*instruction_key(x, self._keys.key), x.num_operands)
            number = self._members[x] = self._number(key)
        return number

    def _input(self, x: HloInstruction) -> int:
        """Return a number that is the same for inputs of equal shapes."""
        number = self._inputs.get(x)
        if number is None:
            number = self._inputs[x] = self._number(x.shape)
        return number

    def _number(self, key: Hashable) -> int:
        return self._number_of.setdefault(key, len(self._number_of))


#: Opcodes that rearrange or generate elements in a way that strides express if they express the operand's read.
_STRAIGHT = frozenset(
    {
        Opcode.BITCAST_CONVERT,
        Opcode.BROADCAST,
        Opcode.CONSTANT,
        Opcode.COPY,
        Opcode.DYNAMIC_SLICE,
        Opcode.IOTA,
        Opcode.REVERSE,
        Opcode.SLICE,
        Opcode.TRANSPOSE,
    }
)


def _is_straight(x: HloInstruction) -> bool:
    """Return whether strides express all reads of ``x``, which has an emitter, in each piece of a loop."""
    if x.opcode in (Opcode.RESHAPE, Opcode.BITCAST):
        wide = [[n for n in one.dims if n != 1] for one in (x, x.operand(0))]
        return wide[0] == wide[1]
    if is_piecewise(x):
        return x.opcode is Opcode.CONCATENATE or not any(x.attrs_as(PadAttrs).interior)
    return x.opcode in _STRAIGHT or OPS[x.opcode].elementwise


def _is_flat(x: HloInstruction, dims: tuple[int, ...]) -> bool:
    """Return whether ``x`` is elementwise over ``dims``, a scalar or a broadcast scalar."""
    if x.opcode is Opcode.BROADCAST:
        return x.dims == dims and not x.operand(0).dims
    elementwise = x.opcode is Opcode.CONSTANT or OPS[x.opcode].elementwise
    return elementwise and x.dims in ((), dims)
