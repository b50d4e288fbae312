"""What it costs that arrays lie as they do: bytes moved into another order, for the readers that need them so.

Every array is a view of one that an instruction writes, in its order of dimensions. A reader that takes any strides
may read it in another order than it writes its own result; one that does not (a library call, a communicator, an
output) is given a copy. Both are counted in bytes, as often as they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from runtime.buffers.view_ops import VIEW_RULES
from runtime.emit.all_to_all import exchange_of, may_move
from runtime.layout.loop_state import LoopElement, loop_elements
from runtime.layout.orders import is_row_major, memory_order, restricted, row_major
from runtime.layout.permuted import COLLECTIVES, can_permute, kept_dims
from runtime.lowering import LOWERINGS, Order, result_order
from runtime.program.strides import StridedView
from spmd.analysis.trip_count import trip_count
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.hlo.opcode_roles import CALLERS
from spmd.shape import ArrayShape

#: What a byte costs: of an operand that is read out of order, and of one that is copied, which takes memory, too.
READ, COPY = 8, 9
#: Views that no strides can say are copies.
REPACKED = (Opcode.RESHAPE, Opcode.BITCAST)

#: Hand arrays on to where they must be row major.
_BOUNDARIES = (
    Opcode.TUPLE,
    Opcode.WHILE,
    Opcode.CONDITIONAL,
    Opcode.CALL,
    Opcode.OPT_BARRIER,
    Opcode.ASYNC_START,
)
_NO_READERS = (
    Opcode.PARAMETER,
    Opcode.CONSTANT,
    Opcode.IOTA,
    Opcode.GET_TUPLE_ELEMENT,
    Opcode.AFTER_ALL,
)
#: Write results in other orders without being another operation then.
_WRITERS = (Opcode.DOT, Opcode.ALL_TO_ALL)

#: Stands for an operand, where a computation's result is not handed on as it lies.
RESULT = -1

#: What it costs, for each operand that is not read as it lies.
Costs: TypeAlias = dict[int, int]


@dataclass
class LayoutModel:
    """``orders``: of arrays that are not row major. ``times``: how often computations run.

    ``elements``: of loop state, by the instructions that read them. ``handed_over``: by the tuples that hold them,
    before a loop or for its next trip, and their place there.
    """

    times: dict[HloComputation, int]
    orders: dict[HloInstruction, Order] = field(default_factory=dict)
    elements: dict[HloInstruction, LoopElement] = field(default_factory=dict)
    handed_over: dict[tuple[HloInstruction, int], LoopElement] = field(default_factory=dict)
    _views: dict[HloInstruction, StridedView] = field(default_factory=dict)
    _costs: dict[HloInstruction, Costs] = field(default_factory=dict)
    _can_permute: dict[HloInstruction, bool] = field(default_factory=dict)

    @staticmethod
    def of(module: HloModule) -> LayoutModel:
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
        for computation in self.times:
            yield from computation.post_order()

    # ---- how arrays lie
    def order(self, x: HloInstruction) -> Order:
        """In which it is written."""
        if x in self.elements:
            return self.elements[x].order
        return self.orders.get(x) or row_major(len(x.dims))

    def representative(self, x: HloInstruction) -> HloInstruction:
        """One of all instructions that read the same element of loop state; any other instruction is its own."""
        return self.elements[x].readers[0] if x in self.elements else x

    def view(self, x: HloInstruction) -> StridedView:
        if x not in self._views:
            self._views[x] = self._seen(x)
        return self._views[x]

    def is_view(self, x: HloInstruction) -> bool:
        """Whether the result is its operand's memory, as this lies now."""
        return x.opcode in VIEW_RULES and self._rearranged(x) is not None

    def can_write(self, x: HloInstruction, order: Order) -> bool:
        if x.parent not in self.times:
            return False
        if x in self.elements:
            return not self.elements[x].is_invariant
        if x.opcode in _WRITERS and isinstance(x.shape, ArrayShape):
            return is_row_major(order) or LOWERINGS[x.opcode].writes(x, order)
        return self.can_permute(x)

    def can_permute(self, x: HloInstruction) -> bool:
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

    # ---- what it costs
    def cost(self, x: HloInstruction) -> int:
        return sum(self.costs(x).values())

    def costs(self, x: HloInstruction) -> Costs:
        if x not in self._costs:
            assert x.parent is not None
            times = self.times[x.parent]
            moved = self._moved(x) | self._at_root(x)
            self._costs[x] = {i: size * times for i, size in moved.items() if size}
        return self._costs[x]

    def _moved(self, x: HloInstruction) -> Costs:
        if x.opcode in _NO_READERS:
            return {}
        if x.opcode in _BOUNDARIES:
            return self._copied(x, lambda i, view: self._is_misplaced(x, i, view))
        if x.opcode in REPACKED:
            return {} if self.is_view(x) else {0: COPY * stored_bytes(self.view(x.operand(0)))}
        if self.is_view(x):
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

    def _is_misplaced(self, x: HloInstruction, operand: int, view: StridedView) -> bool:
        """Whether what ``x`` hands on does not lie as it has to."""
        element = self.handed_over.get((x, operand))
        if element is None:
            return not view.is_dense
        return not element.is_invariant and not view.transpose(element.order).is_dense

    def _copied(self, x: HloInstruction, is_needed: Callable[[int, StridedView], bool]) -> Costs:
        return {i: COPY * stored_bytes(view) for i, view in self._arrays(x) if is_needed(i, view)}

    def _at_root(self, x: HloInstruction) -> Costs:
        """An array that a computation returns is row major."""
        if not x.is_root or not isinstance(x.shape, ArrayShape) or self.view(x).is_dense:
            return {}
        return {RESULT: COPY * stored_bytes(self.view(x))}

    def _read(self, x: HloInstruction) -> Costs:
        """Operands that are read in another order than the result is written."""
        found = {}
        for i, view in self._arrays(x):
            if self.read_order(x, i) == restricted(self.written_order(x, i), self.read_order(x, i)):
                continue
            is_base = x.opcode is Opcode.DYNAMIC_UPDATE_SLICE and i == 0
            found[i] = (COPY if is_base else READ) * stored_bytes(view)
        return found

    def read_order(self, x: HloInstruction, operand: int) -> Order:
        """In which order operand ``operand`` lies, of those dimensions that the result has."""
        order = memory_order(self.view(x.operand(operand)))
        return restricted(order, kept_dims(x)) if x.opcode is Opcode.REDUCE else order

    def written_order(self, x: HloInstruction, operand: int) -> Order:
        """The result's order in dimensions of operand ``operand``."""
        rank = len(x.operand(operand).dims)
        if (x, operand) in self.handed_over:
            return self.handed_over[x, operand].order
        if not self.can_permute(x):
            return row_major(rank)
        order = self.order(x)
        if x.opcode is Opcode.REDUCE:
            kept = kept_dims(x)
            return tuple(kept[d] for d in order)
        return order if rank == len(order) else row_major(rank)

    def _arrays(self, x: HloInstruction) -> Iterator[tuple[int, StridedView]]:
        for i, operand in enumerate(x.operands):
            if isinstance(operand.shape, ArrayShape) and operand.dims:
                yield i, self.view(operand)

    # ---- changes
    def forget_all(self) -> None:
        """The module has been edited."""
        self._views.clear()
        self._costs.clear()

    def readers(self, x: HloInstruction) -> list[HloInstruction]:
        """What depends on how ``x`` is written: itself, views of it, and who reads these."""
        element = self.elements.get(x)
        found = dict.fromkeys(element.readers if element is not None else (x,))
        work = list(found)
        if element is not None:
            found.update(dict.fromkeys(element.tuples))
        while work:
            y = work.pop()
            for user in y.users:
                if user.parent not in self.times:
                    continue
                if user.opcode is Opcode.TUPLE:
                    inside = self._passed_on(user, y)
                    work.extend(reader for reader in inside if reader not in found)
                    found.update(dict.fromkeys(inside))
                elif user not in found and user.opcode in VIEW_RULES:
                    work.append(user)
                found[user] = None
        return list(found)

    def _passed_on(self, state: HloInstruction, x: HloInstruction) -> list[HloInstruction]:
        """Who reads ``x`` through loops that do not change it."""
        return [
            reader
            for i, operand in enumerate(state.operands)
            if operand is x
            and (element := self.handed_over.get((state, i))) is not None
            and element.is_invariant
            for reader in element.readers
        ]

    def write(self, x: HloInstruction, order: Order) -> int:
        """Write ``x`` in that order. The bytes that this costs more (or, negative, saves)."""
        affected = self.readers(x)
        before = sum(map(self.cost, affected))
        if x in self.elements:
            self.elements[x].order = order
        elif is_row_major(order):
            self.orders.pop(x, None)
        else:
            self.orders[x] = order
        self._forget(affected)
        return sum(map(self.cost, affected)) - before

    def _forget(self, instructions: Iterable[HloInstruction]) -> None:
        for x in instructions:
            self._views.pop(x, None)
            self._costs.pop(x, None)


def stored_bytes(view: StridedView) -> int:
    """Of the elements it shows, each counted once however often it is repeated."""
    count = 1
    for size, stride in zip(view.dims, view.strides, strict=True):
        count *= size if stride else 1
    return count * view.element_type.byte_size


def _is_scalar_everywhere(x: HloInstruction) -> bool:
    return x.opcode is Opcode.BROADCAST and not x.operand(0).dims


def running(module: HloModule) -> dict[HloComputation, int]:
    """How often the computations run that the schedule goes through; loops of an unknown number of trips, once."""
    times = {module.entry: 1}
    for computation in reversed(module.computations_post_order()):
        if computation not in times:
            continue
        for x in computation.with_opcode(*CALLERS):
            trips = (trip_count(x) or 1) if x.opcode is Opcode.WHILE else 1
            for callee in x.called_computations:
                times[callee] = times.get(callee, 0) + times[computation] * trips
    return times
