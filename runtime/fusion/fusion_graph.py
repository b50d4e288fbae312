"""The kernels of one computation, each a set of its instructions, and who reads whose results.

At first every instruction that an emitter takes is a kernel of its own, with the views through which it sees operands
(those cost nothing and stand in as many kernels as like). Fusing grows kernels; the computation itself is not touched
until the plan is made: ``make_fusions`` writes it down.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from runtime.fusion.collective_sides import CollectiveSides
from runtime.fusion.fusion_kernel import Kernel, Recipe
from runtime.fusion.kernel_kinds import KernelKinds
from runtime.fusion.plain import is_plain
from runtime.fusion.sliced_products import slices_read
from runtime.schedule.step_facts import StepFacts
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.ops.attrs import ConstantAttrs

#: Constants of more elements are operands: nobody would look through them for one value.
MAX_CONSTANT = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """What one kernel may be: more computing instructions, or more places in its code, would spill registers and grow
    code; more inputs and results would take more address registers than there are.
    """

    instructions: int = 64
    code: int = 128
    inputs: int = 24
    results: int = 12


@dataclass
class FusionGraph:
    """``order``: one that the computation could run in; kernels lie at places of it, and only move within it."""

    computation: HloComputation
    order: Sequence[HloInstruction]
    facts: StepFacts
    kinds: KernelKinds
    limits: Limits = field(default_factory=Limits)
    #: Where devices compute while bytes move; None where they do not.
    sides: CollectiveSides | None = None
    #: What two kernels are together, by their kinds, what they share and which values are wanted.
    recipes: dict[Hashable, Recipe] = field(default_factory=dict)
    position: dict[HloInstruction, int] = field(default_factory=dict)
    kernel_of: dict[HloInstruction, Kernel] = field(default_factory=dict)
    readers: dict[HloInstruction, dict[Kernel, None]] = field(default_factory=dict)
    #: Positions of instructions outside of kernels that read a result, through views too; the end for the root.
    outside: dict[HloInstruction, list[int]] = field(default_factory=dict)
    #: What was a kernel of its own at first.
    _heads: frozenset[HloInstruction] = frozenset()
    #: What products read that take slices where they lie: arrays, and where slices begin.
    _sliced: dict[HloInstruction, tuple[HloInstruction, ...]] = field(default_factory=dict)
    _absorbable: dict[HloInstruction, bool] = field(default_factory=dict)
    _joined: dict[tuple[Kernel, Kernel], Recipe | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.position = {x: n for n, x in enumerate(self.order)}
        for x in self.order:
            if self._is_kernel(x):
                kernel = self._kernel(x)
                if kernel.kind.cost is not None:
                    self._add(kernel)
        self._heads = frozenset(self.kernel_of)
        for x in self.order:
            if x.opcode is Opcode.DOT and is_plain(x):
                inputs = slices_read(x, self._is_absorbable, self.kinds.prices)
                if inputs:
                    self._sliced[x] = inputs
        self._note_outside(self._heads)

    # ---- reading
    @property
    def kernels(self) -> list[Kernel]:
        """Each once, in order."""
        return sorted(dict.fromkeys(self.kernel_of.values()), key=lambda kernel: kernel.position)

    def readers_of(self, kernel: Kernel) -> list[Kernel]:
        if len(kernel.roots) == 1:
            return list(self.readers.get(kernel.roots[0], ()))
        return list(dict.fromkeys(r for x in kernel.roots for r in self.readers.get(x, ())))

    def most_readers(self, kernel: Kernel) -> int:
        """Of one of its results, in constant time."""
        return max([len(self.readers.get(x, ())) for x in kernel.roots])

    def producers_of(self, kernel: Kernel) -> list[Kernel]:
        found = (self.kernel_of.get(x) for x in kernel.inputs)
        return list(dict.fromkeys(producer for producer in found if producer is not None))

    def is_read_outside(self, kernel: Kernel) -> bool:
        """Its results have to be in memory, whoever else reads them."""
        return any(x in self.outside for x in kernel.roots)

    def takes_slices(self, product: HloInstruction) -> bool:
        """Whether it multiplies slices where they lie."""
        return product in self._sliced

    def operands_of(self, x: HloInstruction) -> tuple[HloInstruction, ...]:
        """What an instruction outside of kernels reads: of a slice that is multiplied where it lies, the array."""
        return self._sliced.get(x, x.operands)

    def outside_readers(self, x: HloInstruction) -> list[int]:
        """Positions of instructions outside of kernels that read ``x``, which is no kernel's, through views too."""
        found: list[int] = []
        stack = [x]
        seen = {x}
        while stack:
            one = stack.pop()
            if one is self.computation.root:
                found.append(len(self.order))
            for user in one.users:
                if user in seen:
                    continue
                seen.add(user)
                if self._is_absorbable(user):
                    stack.append(user)
                elif user not in self._heads:
                    found.append(self.position[user])
        return found

    def earliest(self, kernel: Kernel, without: Iterable[Kernel] = ()) -> int:
        """Behind all that it reads, but for what ``without`` give."""
        left_out = set(without)
        found = -1
        for x in kernel.inputs:
            producer = self.kernel_of.get(x)
            if producer is None:
                found = max(found, self.position[x])
            elif producer not in left_out:
                found = max(found, producer.position)
        return found

    def latest(self, kernel: Kernel, without: Iterable[Kernel] = ()) -> int:
        """Before all that read its results, but for ``without``."""
        left_out = set(without)
        found = len(self.order)
        for x in kernel.roots:
            for reader in self.readers.get(x, ()):
                if reader not in left_out:
                    found = min(found, reader.position)
            found = min([found, *self.outside.get(x, ())])
        return found

    # ---- trying
    def joined(self, producer: Kernel, reader: Kernel) -> Recipe | None:
        """How ``reader`` is made with what ``producer`` computes inside it, if limits allow."""
        both = (producer, reader)
        if both not in self._joined:
            self._joined[both] = self._made_of(producer, reader, reader.kind.root_places)
        return self._joined[both]

    def together(self, one: Kernel, other: Kernel, position: int) -> Kernel | None:
        """One kernel for the results of both, if limits allow; results that only the other one read are gone."""
        both = {one, other}
        roots = [
            x
            for x in (*one.roots, *other.roots)
            if self.outside.get(x) or any(r not in both for r in self.readers.get(x, ()))
        ]
        if not 0 < len(roots) <= self.limits.results:
            return None
        place = other.place
        wanted = tuple([place[x] if x in place else ~one.place[x] for x in roots])
        recipe = self._made_of(one, other, wanted)
        return None if recipe is None else recipe.kernel(one, other, position)

    def is_fusion(self, kernel: Kernel) -> bool:
        """Whether there is more to it than one instruction and views."""
        return self._computing(kernel) > 1

    def _computing(self, kernel: Kernel) -> int:
        """How many members compute something."""
        return sum(1 for x in kernel.members if not self._is_absorbable(x))

    def _made_of(self, one: Kernel, other: Kernel, wanted: tuple[int, ...]) -> Recipe | None:
        """What both compute for ``wanted`` values, of ``other`` by number, of ``one`` by the number's complement.

        Found once for kernels of their kinds that share the same values.
        """
        shared = tuple(map(other.place.get, one.values))
        key = (one.kind.number, other.kind.number, shared, wanted)
        recipe = self.recipes.get(key)
        if recipe is None:
            roots = tuple([other.values[n] if n >= 0 else one.values[~n] for n in wanted])
            recipe = self.recipes[key] = self._recipe(one, other, roots)
        kind, limits = recipe.kind, self.limits
        if len(kind.inputs) > limits.inputs:
            return None
        cost = kind.cost
        if cost is None or cost.code > limits.code:
            return None
        if len(kind.members) > limits.instructions:
            made = recipe.kernel(one, other, other.position)
            return recipe if self._computing(made) <= limits.instructions else None
        return recipe

    def _recipe(self, one: Kernel, other: Kernel, roots: tuple[HloInstruction, ...]) -> Recipe:
        members, inputs = self._closed(roots, dict.fromkeys((*one.members, *other.members)))
        both = {x: n for n, x in enumerate((*one.values, *other.values))}
        chosen = tuple([both[x] for x in (*members, *inputs)])
        return Recipe(self.kinds.kind(roots, members, inputs), chosen)

    # ---- changing
    def replace(self, old: Iterable[Kernel], new: Iterable[Kernel]) -> None:
        for kernel in old:
            self._remove(kernel)
        for kernel in new:
            self._add(kernel)

    def _add(self, kernel: Kernel) -> None:
        for x in kernel.roots:
            self.kernel_of[x] = kernel
        for x in kernel.inputs:
            self.readers.setdefault(x, {})[kernel] = None

    def _remove(self, kernel: Kernel) -> None:
        for x in kernel.roots:
            if self.kernel_of.get(x) is kernel:
                del self.kernel_of[x]
        for x in kernel.inputs:
            self.readers[x].pop(kernel, None)

    # ---- making
    def _kernel(self, x: HloInstruction) -> Kernel:
        """Of ``x`` alone, and the views in front of it."""
        members, inputs = self._closed((x,), {x: None})
        kind = self.kinds.kind((x,), members, inputs)
        return Kernel((*members, *inputs), self.position[x], kind)

    def _closed(
        self, roots: Sequence[HloInstruction], members: dict[HloInstruction, None]
    ) -> tuple[dict[HloInstruction, None], dict[HloInstruction, None]]:
        """The members that roots need, with the views in between, and the inputs, in the order they are met."""
        found: dict[HloInstruction, None] = {}
        inputs: dict[HloInstruction, None] = {}
        stack = list(reversed(roots))
        while stack:
            x = stack.pop()
            if x in found or x in inputs:
                continue
            if x in members or self._is_absorbable(x):
                found[x] = None
                stack.extend(reversed(x.operands))
            else:
                inputs[x] = None
        return found, inputs

    def _is_kernel(self, x: HloInstruction) -> bool:
        if not is_plain(x) or x.opcode in _NEVER or self.facts.is_view(x):
            return False
        return self.kinds.has_emitter(x)

    def _is_absorbable(self, x: HloInstruction) -> bool:
        """Free in a kernel, and outside of it: views, numbers that count, and one constant everywhere."""
        known = self._absorbable.get(x)
        if known is None:
            known = self._absorbable[x] = is_plain(x) and self._is_free(x)
        return known

    def _is_free(self, x: HloInstruction) -> bool:
        if x.opcode is Opcode.IOTA:
            return True
        if x.opcode is Opcode.CONSTANT:
            literal = x.attrs_as(ConstantAttrs).literal
            return (
                literal is not None
                and 0 < x.array_shape.num_elements <= MAX_CONSTANT
                and self.kinds.has_emitter(x)
            )
        return self.facts.is_view(x) and self.kinds.has_emitter(x)

    def _note_outside(self, heads: Collection[HloInstruction]) -> None:
        """Backwards: who needs what a view shows stands behind the view."""
        needed: dict[HloInstruction, list[int]] = {self.computation.root: [len(self.order)]}
        for x in reversed(self.order):
            here = needed.pop(x, [])
            if x in heads:
                if here:
                    self.outside[x] = sorted(set(here))
                continue
            seen_through = self._is_absorbable(x)
            for operand in dict.fromkeys(self.operands_of(x)):
                if not seen_through:
                    needed.setdefault(operand, []).append(self.position[x])
                elif here:
                    needed.setdefault(operand, []).extend(here)


#: Sources, which nothing computes.
_NEVER = frozenset({Opcode.PARAMETER, Opcode.CONSTANT, Opcode.IOTA, Opcode.FUSION})
