"""Cost model of layouts: the bytes that readers read out of order, or that are copied to the order that readers need.

Every array is a view of an array that an instruction writes in its own dimension order. A reader that accepts any
strides may read an operand in another order than it writes its result. For a reader that does not (a library call, a
communicator, an output), the operand is copied. Both cost bytes, times the number of executions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from itertools import chain
from typing import TypeAlias

from runtime.buffers.view_ops import VIEW_RULES
from runtime.emit.all_to_all import exchange_of, may_move
from runtime.layout.attention_results import is_attention_result
from runtime.layout.loop_state import LoopElement, loop_elements
from runtime.layout.orders import is_row_major, memory_order, restricted, row_major
from runtime.layout.permuted import COLLECTIVES, can_permute, unreduced_dims
from runtime.layout.readers import BOUNDARIES, ReaderIndex, Readers
from runtime.lowering import LOWERINGS, Order, result_order
from runtime.program.strides import StridedView
from spmd.analysis.fusion_emitter import is_attention
from spmd.analysis.trip_count import trip_count
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.hlo.opcode_roles import CALLERS
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape

#: Cost per byte of an operand that is read out of order, and of an operand that is copied, which also takes memory.
READ, COPY = 8, 9
#: Views that become copies if strides cannot express them.
REPACKED = (Opcode.RESHAPE, Opcode.BITCAST)

_NO_READERS = (
    Opcode.PARAMETER,
    Opcode.CONSTANT,
    Opcode.IOTA,
    Opcode.GET_TUPLE_ELEMENT,
    Opcode.AFTER_ALL,
)
#: Ops that can write their results in other orders without being rewritten.
_WRITERS = (Opcode.DOT, Opcode.ALL_TO_ALL)

#: Operand number in ``Costs`` of the result of a computation, if it must be copied.
RESULT = -1

#: Costs by the number of the operand, for operands that are read out of order or copied.
Costs: TypeAlias = dict[int, int]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a model: ``x`` is written in ``order`` instead of ``previous``.

    rises: by instruction, by how much its cost rises. costs, views, copies: the affected entries before the change.
    """

    x: HloInstruction
    previous: Order
    order: Order
    rises: dict[HloInstruction, int]
    costs: dict[HloInstruction, Costs]
    views: dict[HloInstruction, StridedView | None]
    copies: dict[tuple[HloInstruction, HloInstruction], Costs]

    @property
    def added(self) -> int:
        """Return the change of the total cost; if negative, the change saves bytes."""
        return sum(self.rises.values())


@dataclass
class LayoutModel:
    """Layout cost model of a module.

    times: execution count of each scheduled computation. orders: dimension orders of the instructions that do not write
    row-major. elements: loop state elements, by the instructions that read them. handed_over: loop state elements, by
    the tuple that holds them before the loop or for the next trip and their index in the tuple.
    """

    times: dict[HloComputation, int]
    orders: dict[HloInstruction, Order] = field(default_factory=dict)
    elements: dict[HloInstruction, LoopElement] = field(default_factory=dict)
    handed_over: dict[tuple[HloInstruction, int], LoopElement] = field(default_factory=dict)
    _views: dict[HloInstruction, StridedView] = field(default_factory=dict)
    _costs: dict[HloInstruction, Costs] = field(default_factory=dict)
    _can_permute: dict[HloInstruction, bool] = field(default_factory=dict)
    #: Whether the view of an instruction is dense. Loop states of hundreds of arrays ask for it again and again.
    _dense: dict[HloInstruction, bool] = field(default_factory=dict)
    #: By boundary, the copies of each operand that is copied. A result may have hundreds of operands, of which a change
    #: concerns one.
    _passed_copies: dict[HloInstruction, dict[HloInstruction, Costs]] = field(default_factory=dict)
    _readers: ReaderIndex = field(init=False)

    def __post_init__(self) -> None:
        self._readers = ReaderIndex(self.times, self.elements, self.handed_over)

    @staticmethod
    def of(module: HloModule) -> LayoutModel:
        """Return the model of ``module`` with its present layouts."""
        model = LayoutModel(running(module))
        for element in loop_elements(module, model.times):
            model.elements.update(dict.fromkeys(element.readers, element))
            for state in element.tuples:
                model.handed_over[state, element.index] = element
        for x in model.instructions():
            if x.opcode in _WRITERS and isinstance(x.shape, ArrayShape):
                order = result_order(x)
                if not is_row_major(order):
                    model.orders[x] = order
        return model

    def instructions(self) -> Iterator[HloInstruction]:
        """Yield the instructions of all scheduled computations, operands before their users."""
        for computation in self.times:
            yield from computation.post_order()

    # ---- layouts of arrays
    def order(self, x: HloInstruction) -> Order:
        """Return the dimension order in which ``x`` is written."""
        if x in self.elements:
            return self.elements[x].order
        return self.orders.get(x) or row_major(len(x.dims))

    def representative(self, x: HloInstruction) -> HloInstruction:
        """Return the first of the instructions that read the same loop element as ``x``, or ``x`` if it reads none."""
        return self.elements[x].readers[0] if x in self.elements else x

    def view(self, x: HloInstruction) -> StridedView:
        """Return the strided view of the memory that holds ``x``, in the present layouts."""
        if x not in self._views:
            self._views[x] = self._seen(x)
        return self._views[x]

    def is_view(self, x: HloInstruction) -> bool:
        """Return whether the result is a view of its operand's memory in the operand's present layout."""
        return x.opcode in VIEW_RULES and self._rearranged(x) is not None

    def can_write(self, x: HloInstruction, order: Order) -> bool:
        """Return whether ``x`` can be written in ``order``."""
        if x.parent not in self.times:
            return False
        if x in self.elements:
            return not self.elements[x].is_invariant
        if x.opcode in _WRITERS and isinstance(x.shape, ArrayShape):
            return is_row_major(order) or LOWERINGS[x.opcode].writes(x, order)
        return self.can_permute(x) or is_attention_result(x)

    def can_permute(self, x: HloInstruction) -> bool:
        """Return whether ``x`` can be rewritten with its dimensions in another order (``permuted.can_permute``)."""
        if x not in self._can_permute:
            self._can_permute[x] = can_permute(x)
        return self._can_permute[x]

    def _seen(self, x: HloInstruction) -> StridedView:
        if x.opcode in VIEW_RULES:
            view = self._rearranged(x)
            if view is not None:
                return view
        element = self.elements.get(x)
        if element is not None and element.is_invariant:
            return self.view(element.initial)
        if x.opcode is Opcode.IOTA or _is_scalar_everywhere(x):
            return StridedView(x.array_shape.element_type, x.dims, (0,) * len(x.dims))
        return StridedView.dense_in_order(x.array_shape, self.order(x))

    def _rearranged(self, x: HloInstruction) -> StridedView | None:
        if not isinstance(x.operand(0).shape, ArrayShape):
            return None
        return VIEW_RULES[x.opcode](x, self.view(x.operand(0)))

    # ---- costs
    def cost(self, x: HloInstruction) -> int:
        """Return the sum of the costs of ``x``."""
        return sum(self.costs(x).values())

    def costs(self, x: HloInstruction) -> Costs:
        """Return the positive costs of ``x`` in weighted bytes (READ, COPY) times the number of executions."""
        if x not in self._costs:
            assert x.parent is not None
            times = self.times[x.parent]
            moved = self._moved(x) | self._at_root(x)
            self._costs[x] = {i: size * times for i, size in moved.items() if size}
        return self._costs[x]

    def _moved(self, x: HloInstruction) -> Costs:
        if x.opcode in _NO_READERS:
            return {}
        if x.opcode in BOUNDARIES:
            return self._passed_on_copies(x)
        if x.opcode in REPACKED:
            return {} if self.is_view(x) else {0: COPY * self.view(x.operand(0)).stored_bytes}
        if self.is_view(x) or is_attention(x):  # blocks of attention are read with any strides
            return {}
        if x.opcode in (Opcode.DOT, Opcode.CONVOLUTION):
            views = tuple(self.view(o) for o in x.operands)
            needed = LOWERINGS[x.opcode].layouts(x, views)
            return self._copied(x, lambda i, _: i in needed)
        if x.opcode is Opcode.ALL_TO_ALL and may_move(x):
            written = self.order(x)
            return self._copied(x, lambda _, view: exchange_of(x, view, written) is None)
        if x.opcode in COLLECTIVES or x.opcode is Opcode.ALL_TO_ALL:
            order = self.orders.get(x)
            return self._copied(
                x, lambda _, view: not (view.transpose(order) if order else view).is_packed
            )
        return self._read(x)

    def _passed_on_copies(self, x: HloInstruction) -> Costs:
        """Return the costs of the operands of a boundary that are copied to the order that its computation needs."""
        copies = self._passed_copies.get(x)
        if copies is None:
            found = (
                (operand, self._copies_of(x, operand))
                for operand in self._readers.arrays_passed_by(x)
            )
            copies = self._passed_copies[x] = {operand: costs for operand, costs in found if costs}
        return dict(sorted(chain.from_iterable(costs.items() for costs in copies.values())))

    def _copies_of(self, x: HloInstruction, operand: HloInstruction) -> Costs:
        """Return the costs of the copies of ``operand`` that the boundary ``x`` needs, by its positions."""
        return {
            i: COPY * self.view(operand).stored_bytes
            for i, element in self._readers.arrays_passed_by(x)[operand]
            if self._is_misplaced(operand, element)
        }

    def _is_misplaced(self, x: HloInstruction, element: LoopElement | None) -> bool:
        """Return whether ``x`` is in another order than the computation that receives it, as ``element``, needs."""
        if element is None:
            return not self.is_dense(x)
        return not element.is_invariant and not self.view(x).transpose(element.order).is_dense

    def is_dense(self, x: HloInstruction) -> bool:
        """Return whether the memory that holds ``x`` is row-major without gaps, in the present layouts."""
        found = self._dense.get(x)
        if found is None:
            found = self._dense[x] = self.view(x).is_dense
        return found

    def _copied(self, x: HloInstruction, is_needed: Callable[[int, StridedView], bool]) -> Costs:
        return {i: COPY * view.stored_bytes for i, view in self._arrays(x) if is_needed(i, view)}

    def _at_root(self, x: HloInstruction) -> Costs:
        """Return the cost of a copy of ``x`` if it is the root: an array that a computation returns is row-major."""
        if not x.is_root or not isinstance(x.shape, ArrayShape) or self.is_dense(x):
            return {}
        return {RESULT: COPY * self.view(x).stored_bytes}

    def _read(self, x: HloInstruction) -> Costs:
        """Return the costs of the operands that are read in another order than the result is written."""
        found = {}
        for i, view in self._arrays(x):
            if self.read_order(x, i) == restricted(self.written_order(x, i), self.read_order(x, i)):
                continue
            is_base = x.opcode is Opcode.DYNAMIC_UPDATE_SLICE and i == 0
            found[i] = (COPY if is_base else READ) * view.stored_bytes
        return found

    def read_order(self, x: HloInstruction, operand: int) -> Order:
        """Return the memory order of operand ``operand``; for a reduce, that of its unreduced dimensions."""
        order = memory_order(self.view(x.operand(operand)))
        return restricted(order, unreduced_dims(x)) if x.opcode is Opcode.REDUCE else order

    def written_order(self, x: HloInstruction, operand: int) -> Order:
        """Return the order in which ``x`` writes its result, in terms of the dimensions of operand ``operand``."""
        rank = len(x.operand(operand).dims)
        if (x, operand) in self.handed_over:
            return self.handed_over[x, operand].order
        if not self.can_permute(x):
            return row_major(rank)
        order = self.order(x)
        if x.opcode is Opcode.REDUCE:
            unreduced = unreduced_dims(x)
            return tuple(unreduced[d] for d in order)
        return order if rank == len(order) else row_major(rank)

    def _arrays(self, x: HloInstruction) -> Iterator[tuple[int, StridedView]]:
        """Yield the number and the view of each operand that is an array of rank 1 or more."""
        for i, operand in enumerate(x.operands):
            if isinstance(operand.shape, ArrayShape) and operand.dims:
                yield i, self.view(operand)

    # ---- changes
    def forget_all(self) -> None:
        """Drop all cached views and costs. It must be called after an edit of the module."""
        for cache in (
            self._views,
            self._costs,
            self._dense,
            self._passed_copies,
        ):
            cache.clear()
        self._readers.forget_all()

    def write(self, x: HloInstruction, order: Order) -> Change:
        """Write ``x`` in ``order`` in the model."""
        readers = self._readers.of(x)
        costs = {y: self.costs(y) for y in readers.instructions}
        views = {y: self._views.get(y) for y in readers.instructions}
        copies = self._known_copies(readers)
        previous = self.order(x)
        self._set_order(x, order)
        self._forget(readers.instructions)
        for user, operand in copies:
            self._set_copies(user, operand, self._copies_of(user, operand))
        rises = {y: self.cost(y) - sum(cost.values()) for y, cost in costs.items()}
        return Change(x, previous, order, rises, costs, views, copies)

    def revert(self, change: Change) -> None:
        """Revert ``change``, the last one that was not reverted."""
        self._set_order(change.x, change.previous)
        self._forget(change.costs)
        self._costs.update(change.costs)
        self._views.update((y, view) for y, view in change.views.items() if view is not None)
        for (user, operand), costs in change.copies.items():
            self._set_copies(user, operand, costs)

    def _set_order(self, x: HloInstruction, order: Order) -> None:
        if x in self.elements:
            self.elements[x].order = order
        elif is_row_major(order):
            self.orders.pop(x, None)
        else:
            self.orders[x] = order

    def _known_copies(self, readers: Readers) -> dict[tuple[HloInstruction, HloInstruction], Costs]:
        """Return the copies of the operands that ``readers`` pass on, as far as they are known."""
        return {
            (user, operand): self._passed_copies[user].get(operand, {})
            for user, operand in readers.passed
            if user in self._passed_copies
        }

    def _set_copies(self, user: HloInstruction, operand: HloInstruction, costs: Costs) -> None:
        if costs:
            self._passed_copies[user][operand] = costs
        else:
            self._passed_copies[user].pop(operand, None)

    def _forget(self, instructions: Iterable[HloInstruction]) -> None:
        for x in instructions:
            self._views.pop(x, None)
            self._costs.pop(x, None)
            self._dense.pop(x, None)


def _is_scalar_everywhere(x: HloInstruction) -> bool:
    """Return whether ``x`` is a broadcast scalar, for which no memory is written."""
    return x.opcode is Opcode.BROADCAST and not x.operand(0).dims


def running(module: HloModule) -> dict[HloComputation, int]:
    """Return how often each scheduled computation runs. A loop with an unknown trip count counts as one trip."""
    times = {module.entry: 1}
    for computation in reversed(module.computations_post_order()):
        if computation not in times:
            continue
        for x in computation.with_opcode(*CALLERS):
            trips = (trip_count(x) or 1) if x.opcode is Opcode.WHILE else 1
            for callee in x.called_computations:
                times[callee] = times.get(callee, 0) + times[computation] * trips
    return times
