"""Layouts of loop state: each element has the same dimension order before, inside and after the loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field

from runtime.layout.orders import is_row_major, row_major
from runtime.layout.permuted import in_order
from runtime.lowering import Order
from spmd.analysis.call_sites import call_sites
from spmd.builder import Builder, ModuleScope
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.rewrite import is_annotated
from spmd.passes.while_state import Loop, element_index, match_loop, result_has_only_element_reads
from spmd.shape import ArrayShape, Shape, TupleShape


@dataclass(eq=False)
class LoopElement:
    """Element of a loop's state.

    readers: the get-tuple-elements that read the element in the loop's computations and after the loop. order: its
    dimension order. An invariant element, which the body passes on unchanged, is a view of the initial value, and its
    order is not used.
    """

    loop: Loop
    index: int
    readers: tuple[HloInstruction, ...]
    order: Order = field(init=False)

    def __post_init__(self) -> None:
        self.order = row_major(len(self.initial.dims))

    @property
    def initial(self) -> HloInstruction:
        """Return the initial value of the element."""
        return self.loop.initial[self.index]

    @property
    def is_invariant(self) -> bool:
        """Return whether the body passes the element on unchanged."""
        return self.loop.is_invariant(self.index)

    @property
    def tuples(self) -> tuple[HloInstruction, HloInstruction]:
        """Return the tuples that hold the element's value before the loop and for the next trip."""
        return self.loop.instruction.operand(0), self.loop.body.root


def loop_elements(
    module: HloModule, computations: Iterable[HloComputation]
) -> Iterator[LoopElement]:
    """Yield the elements of the loops in ``computations`` whose layout may be chosen freely."""
    sites = call_sites(module)
    for computation in computations:
        for x in computation.with_opcode(Opcode.WHILE):
            loop = match_loop(x, sites)
            if (
                loop is None
                or not result_has_only_element_reads(loop)
                or x.operand(0).num_users > 1
            ):
                continue
            found: list[list[HloInstruction]] = [[] for _ in loop.initial]
            for state in (loop.condition.parameters[0], loop.body.parameters[0], x):
                for user in state.users:
                    found[element_index(user)].append(user)
            for index, (value, readers) in enumerate(zip(loop.initial, found, strict=True)):
                if readers and _is_free(value.shape) and not any(map(_is_bound, readers)):
                    yield LoopElement(loop, index, tuple(readers))


def _is_free(shape: Shape) -> bool:
    """Return whether ``shape`` is an array of rank 2 or more whose layout has no suffix, such as tiling."""
    if not isinstance(shape, ArrayShape) or shape.rank < 2:
        return False
    return shape.layout is None or not shape.layout.suffix


def _is_bound(x: HloInstruction) -> bool:
    """Return whether ``x`` must not be rewritten, because it has control edges or annotations."""
    return x.has_control_edges or is_annotated(x)


def normalize(elements: Iterable[LoopElement], scope: ModuleScope) -> bool:
    """Rewrite loops so that their elements are row-major, with dimensions permuted to the chosen orders.

    Returns whether any loop changed.
    """
    loops: dict[HloInstruction, list[LoopElement]] = {}
    for element in dict.fromkeys(elements):
        if not is_row_major(element.order):
            loops.setdefault(element.loop.instruction, []).append(element)
    for of_loop in loops.values():
        _normalize_loop(of_loop[0].loop, of_loop, scope)
    return bool(loops)


def _normalize_loop(loop: Loop, elements: list[LoopElement], scope: ModuleScope) -> None:
    """Permute the dimensions of ``elements`` in the state of ``loop``, and transpose them back for their readers."""
    orders = {element.index: element.order for element in elements}
    x, outside = loop.instruction, loop.instruction.parent
    assert outside is not None
    before, root = x.operand(0), loop.body.root
    x.replace_operand(0, _ordered(before, orders, Builder(outside, scope)))
    outside.remove(before)
    loop.body.root = _ordered(root, orders, Builder(loop.body, scope))
    loop.body.remove(root)
    for state in (loop.condition.parameters[0], loop.body.parameters[0], x):
        state.shape = x.operand(0).shape
    for element in elements:
        back = tuple(element.order.index(d) for d in range(len(element.order)))
        for reader in element.readers:
            assert reader.parent is not None
            assert isinstance(x.shape, TupleShape)
            reader.shape = x.shape.elements[element.index]
            seen = in_order(reader, back, Builder(reader.parent, scope))
            reader.replace_all_uses_with(seen)


def _ordered(state: HloInstruction, orders: dict[int, Order], b: Builder) -> HloInstruction:
    """Return the tuple ``state`` with the dimensions of its elements permuted to ``orders``, by index."""
    return b.tuple(
        [in_order(o, orders[i], b) if i in orders else o for i, o in enumerate(state.operands)]
    )
