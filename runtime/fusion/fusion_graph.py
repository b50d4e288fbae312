"""Graph of the kernels of one computation and their readers. Each kernel is a set of the computation's instructions.

At first every instruction that has an emitter is a kernel of its own, with the views through which it reads operands
(views cost nothing and may be in any number of kernels). Fusion then grows the kernels. The computation itself does not
change until the plan is complete and ``make_fusions`` applies it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import field

from runtime.fusion.collective_sides import CollectiveSides
from runtime.fusion.cost.cost_model import KernelCost
from runtime.fusion.element_operations import is_elementwise, is_plain
from runtime.fusion.fusion_kernel import FusedKernelSpec, Join, Kernel
from runtime.fusion.kernel_kinds import KernelKinds
from runtime.fusion.products.sliced_products import slices_read
from runtime.fusion.row_region import have_common_rows
from runtime.schedule.op_facts import OpFacts
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ConstantAttrs

#: Largest number of elements of a constant that kernels may contain; a larger one is an operand.
MAX_CONSTANT = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one kernel.

    More computing instructions, or more code, would spill registers. More inputs and results would need more address
    registers than exist.
    """

    instructions: int = 64
    code: int = 128
    inputs: int = 24
    results: int = 12


@dataclass
class FusionGraph:
    """Graph of the kernels of ``computation``. Every kernel has a position in ``order``, a valid instruction order."""

    computation: HloComputation
    order: Sequence[HloInstruction]
    facts: OpFacts
    kinds: KernelKinds
    limits: Limits = field(default_factory=Limits)
    #: Set if devices compute during communication; otherwise None.
    sides: CollectiveSides | None = None
    #: Specifications of joined kernels (None: beyond the limits), by both kinds, the shared values and the roots.
    specs: dict[Hashable, FusedKernelSpec | None] = field(default_factory=dict)
    position: dict[HloInstruction, int] = field(default_factory=dict)
    kernel_of: dict[HloInstruction, Kernel] = field(default_factory=dict)
    readers: dict[HloInstruction, dict[Kernel, None]] = field(default_factory=dict)
    #: Positions of instructions outside of kernels that read a result, directly or through views; the
    #: computation's root counts as read at the end.
    outside: dict[HloInstruction, list[int]] = field(default_factory=dict)
    #: Instructions that were initial kernels.
    _initial: frozenset[HloInstruction] = frozenset()
    #: Operands of the products that read slices in place: the sliced arrays and the start indices.
    _sliced: dict[HloInstruction, tuple[HloInstruction, ...]] = field(default_factory=dict)
    _absorbable: dict[HloInstruction, bool] = field(default_factory=dict)
    _joined: dict[tuple[Kernel, Kernel], FusedKernelSpec | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.position = {x: n for n, x in enumerate(self.order)}
        for x in self.order:
            if self._is_kernel(x):
                kernel = self._kernel(x)
                if kernel.kind.cost is not None:
                    self._add(kernel)
        self._initial = frozenset(self.kernel_of)
        for x in self.order:
            if x.opcode is Opcode.DOT and is_plain(x):
                inputs = slices_read(x, self._is_absorbable, self.kinds.costs.model)
                if inputs:
                    self._sliced[x] = inputs
        self._note_outside(self._initial)

    # ---- reading
    @property
    def kernels(self) -> list[Kernel]:
        """Return the kernels, each once, by position."""
        return sorted(dict.fromkeys(self.kernel_of.values()), key=lambda kernel: kernel.position)

    def readers_of(self, kernel: Kernel) -> list[Kernel]:
        """Return the kernels that read a result of ``kernel``, each once."""
        if len(kernel.roots) == 1:
            return list(self.readers.get(kernel.roots[0], ()))
        return list(dict.fromkeys(r for x in kernel.roots for r in self.readers.get(x, ())))

    def most_readers(self, kernel: Kernel) -> int:
        """Return the number of kernels that read the most widely read result; unlike ``readers_of``, make no list."""
        return max([len(self.readers.get(x, ())) for x in kernel.roots])

    def producers_of(self, kernel: Kernel) -> list[Kernel]:
        """Return the kernels that produce inputs of ``kernel``, each once."""
        found = (self.kernel_of.get(x) for x in kernel.inputs)
        return list(dict.fromkeys(producer for producer in found if producer is not None))

    def is_read_outside(self, kernel: Kernel) -> bool:
        """Return whether instructions outside of kernels read a result, which must then be in memory."""
        return any(x in self.outside for x in kernel.roots)

    def reads_slices(self, product: HloInstruction) -> bool:
        """Return whether ``product`` reads slices in place."""
        return product in self._sliced

    def operands_of(self, x: HloInstruction) -> tuple[HloInstruction, ...]:
        """Return the operands of ``x``, which is in no kernel; a slice read in place is replaced by its array."""
        return self._sliced.get(x, x.operands)

    def seen_through(self, x: HloInstruction) -> Collection[HloInstruction]:
        """Return the values that ``x`` shows through views: ``x`` alone if it is no view."""
        return self._closed((x,), {})[1]

    def outside_readers(self, x: HloInstruction) -> list[int]:
        """Return the positions of the readers of ``x`` outside of kernels, also through views.

        No kernel makes ``x``.
        """
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
                elif user not in self._initial:
                    found.append(self.position[user])
        return found

    def earliest(self, kernel: Kernel, without: Iterable[Kernel] = ()) -> int:
        """Return the last position of the inputs of ``kernel``, except those that kernels in ``without`` make."""
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
        """Return the first position of the readers of ``kernel``, except those in ``without``."""
        left_out = set(without)
        found = len(self.order)
        for x in kernel.roots:
            for reader in self.readers.get(x, ()):
                if reader not in left_out:
                    found = min(found, reader.position)
            found = min([found, *self.outside.get(x, ())])
        return found

    # ---- trying
    def joined(self, producer: Kernel, reader: Kernel) -> FusedKernelSpec | None:
        """Return the specification of ``reader`` that also computes ``producer``, or None if it exceeds the limits."""
        both = (producer, reader)
        if both not in self._joined:
            self._joined[both] = self._made_of(producer, reader, reader.kind.root_indices)
        return self._joined[both]

    def is_tried(self, producer: Kernel, reader: Kernel) -> bool:
        """Return whether the result of ``joined`` is cached for these two kernels."""
        return (producer, reader) in self._joined

    def merged(self, one: Kernel, other: Kernel, position: int) -> Kernel | None:
        """Return one kernel for the results of both that others read, or None if it exceeds the limits."""
        both = {one, other}
        roots = [
            x
            for x in (*one.roots, *other.roots)
            if self.outside.get(x) or any(r not in both for r in self.readers.get(x, ()))
        ]
        if not 0 < len(roots) <= self.limits.results:
            return None
        index_of = other.index_of
        wanted = tuple([index_of[x] if x in index_of else ~one.index_of[x] for x in roots])
        spec = self._made_of(one, other, wanted)
        return None if spec is None else spec.kernel(one, other, position)

    def is_read_in_place(self, producer: Kernel, readers: Collection[Kernel]) -> bool:
        """Return whether ``readers`` alone read the one elementwise result, each element at its own index."""
        x = producer.roots[0]
        return (
            len(producer.roots) == 1
            and is_elementwise(x.opcode)
            and x not in self.outside
            and all(
                is_elementwise(user.opcode)
                and user.dims == x.dims
                and self.kernel_of.get(user) in readers
                for user in x.users
            )
        )

    def may_be_epilogue(self, kernel: Kernel) -> bool:
        """Return whether a reduction or a product makes an input, and may compute ``kernel`` as its epilogue."""
        return any(
            x.opcode in _WITH_EPILOGUES or (x in self.kernel_of and self.kernel_of[x].kind.reduces)
            for x in kernel.inputs
        )

    def kernel_of_region(self, region: Sequence[Kernel]) -> Kernel | None:
        """Return one kernel for the results of ``region[0]``, or None if it exceeds the limits or has no emitter."""
        first = region[0]
        members, inputs = self._closed(first.roots, {x: None for k in region for x in k.members})
        if len(inputs) > self.limits.inputs:
            return None
        kind = self.kinds.kind(first.roots, members, inputs)
        if kind.cost is None or kind.cost.code > self.limits.code or kind.emitter is None:
            return None
        return Kernel((*members, *inputs), first.position, kind)

    def is_fusion(self, kernel: Kernel) -> bool:
        """Return whether the kernel has more than one instruction, not counting views."""
        return self._computing(kernel.members) > 1

    def _computing(self, members: Iterable[HloInstruction]) -> int:
        """Return the number of ``members`` that are not free (``_is_absorbable``)."""
        return sum([not self._is_absorbable(x) for x in members])

    def _made_of(
        self, one: Kernel, other: Kernel, wanted: tuple[int, ...]
    ) -> FusedKernelSpec | None:
        """Return the joined kernel of ``wanted`` values (n: of ``other``, ~n: of ``one``), or None beyond the limits.

        The result is cached for kernels of the same kinds that share the same values.
        """
        shared = tuple(map(other.index_of.get, one.values))
        key = (one.kind.number, other.kind.number, shared, wanted)
        if key not in self.specs:
            roots = tuple([other.values[n] if n >= 0 else one.values[~n] for n in wanted])
            self.specs[key] = self._spec(one, other, roots)
        return self.specs[key]

    def _spec(
        self, one: Kernel, other: Kernel, roots: tuple[HloInstruction, ...]
    ) -> FusedKernelSpec | None:
        """Return the specification of the kernel that computes ``roots`` of two kernels, or None beyond the limits."""
        both = dict.fromkeys((*one.members, *other.members))
        if len(one.roots) > 1 or roots != other.roots:
            join = self._join(one, other, roots, both)
            if not self._is_within_limits(join.kind.members, join.kind.inputs):
                return None
            return self._within_code(join.kind.cost, lambda: join)
        # The joined kernel needs all members of both, so its inputs are known without a traversal.
        inputs = {x: None for x in (*other.inputs, *one.inputs) if x not in both}
        if not self._is_within_limits(both, inputs):
            return None
        regions = [kernel.kind.region for kernel in (one, other) if kernel.kind.reduces]
        if regions:
            if not have_common_rows(regions, roots):
                return None
            join = self._join(one, other, roots, both)
            return self._within_code(join.kind.cost, lambda: join)
        cost = self.kinds.costs.of_loop(
            roots,
            sorted(both, key=self.position.__getitem__),
            inputs,
            flat=one.kind.flat and other.kind.flat and one.roots[0].dims in ((), roots[0].dims),
        )
        return self._within_code(cost, lambda: self._join(one, other, roots, both, cost))

    def _is_within_limits(
        self, members: Collection[HloInstruction], inputs: Collection[HloInstruction]
    ) -> bool:
        """Return whether one kernel may have these ``members``, of which free ones do not count, and ``inputs``."""
        most = self.limits.instructions
        return len(inputs) <= self.limits.inputs and (
            len(members) <= most or self._computing(members) <= most
        )

    def _within_code(
        self, cost: KernelCost | None, make: Callable[[], Join]
    ) -> FusedKernelSpec | None:
        """Return the specification of the join, or None if there is no cost or more code than the limit."""
        if cost is None or cost.code > self.limits.code:
            return None
        return FusedKernelSpec(cost, make)

    def _join(
        self,
        one: Kernel,
        other: Kernel,
        roots: tuple[HloInstruction, ...],
        both: dict[HloInstruction, None],
        cost: KernelCost | None = None,
    ) -> Join:
        """Return the join that computes ``roots`` from the members of both kernels, which are ``both``."""
        members, inputs = self._closed(roots, both)
        index_of = {x: n for n, x in enumerate((*one.values, *other.values))}
        chosen = tuple([index_of[x] for x in (*members, *inputs)])
        return Join(self.kinds.kind(roots, members, inputs, cost), chosen)

    # ---- changing
    def replace(self, old: Iterable[Kernel], new: Iterable[Kernel]) -> None:
        """Replace the kernels ``old`` by ``new`` ones, which must compute all results that others read."""
        for kernel in old:
            self._remove(kernel)
        for kernel in new:
            self._add(kernel)

    def _add(self, kernel: Kernel) -> None:
        """Enter ``kernel`` as the kernel of its roots and as a reader of its inputs."""
        for x in kernel.roots:
            self.kernel_of[x] = kernel
        for x in kernel.inputs:
            self.readers.setdefault(x, {})[kernel] = None

    def _remove(self, kernel: Kernel) -> None:
        """Undo ``_add``, except for roots that a newer kernel computes."""
        for x in kernel.roots:
            if self.kernel_of.get(x) is kernel:
                del self.kernel_of[x]
        for x in kernel.inputs:
            self.readers[x].pop(kernel, None)

    # ---- making
    def _kernel(self, x: HloInstruction) -> Kernel:
        """Return the initial kernel of ``x``, which includes the views through which ``x`` reads its operands."""
        members, inputs = self._closed((x,), {x: None})
        kind = self.kinds.kind((x,), members, inputs)
        return Kernel((*members, *inputs), self.position[x], kind)

    def _closed(
        self, roots: Sequence[HloInstruction], members: dict[HloInstruction, None]
    ) -> tuple[dict[HloInstruction, None], dict[HloInstruction, None]]:
        """Return the members that ``roots`` need, views between them, and the inputs, in order of discovery."""
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
        """Return whether ``x`` is a kernel of its own at first."""
        if not is_plain(x) or x.opcode in _NEVER or self.facts.is_view(x):
            return False
        return self.kinds.has_emitter(x)

    def _is_absorbable(self, x: HloInstruction) -> bool:
        """Return whether ``x`` costs nothing in a kernel or outside: views, iotas, and constants of one value."""
        known = self._absorbable.get(x)
        if known is None:
            known = self._absorbable[x] = is_plain(x) and self._is_free(x)
        return known

    def _is_free(self, x: HloInstruction) -> bool:
        """Return whether ``x``, which is plain, costs nothing (see ``_is_absorbable``)."""
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

    def _note_outside(self, initial: Collection[HloInstruction]) -> None:
        """Fill ``outside``, going backwards: the readers of a view, which come after it, also read its operand."""
        needed: dict[HloInstruction, list[int]] = {self.computation.root: [len(self.order)]}
        for x in reversed(self.order):
            here = needed.pop(x, [])
            if x in initial:
                if here:
                    self.outside[x] = sorted(set(here))
                continue
            seen_through = self._is_absorbable(x)
            for operand in dict.fromkeys(self.operands_of(x)):
                if not seen_through:
                    needed.setdefault(operand, []).append(self.position[x])
                elif here:
                    needed.setdefault(operand, []).extend(here)


_WITH_EPILOGUES = frozenset({Opcode.CONVOLUTION, Opcode.DOT})
#: Opcodes that are never kernels: instructions that compute nothing, and existing fusions.
_NEVER = frozenset({Opcode.PARAMETER, Opcode.CONSTANT, Opcode.IOTA, Opcode.FUSION})
