"""Greedy search for layouts. It resolves the most costly conflicts first, and changes either readers or writers.

A conflict is an operand that a reader reads out of order or copies. Proposals are orders that resolve the conflict:
the operand's writer may use the reader's order, translated through the views between the two (upwards), or the reader
may write its own result in the operand's order (downwards). If a change raises the cost of other instructions, their
orders are changed as well. The search keeps the prefix of such a sequence of changes that saves most. It keeps no
change that does not save bytes, so it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from runtime.layout.model import REPACKED, RESULT, Change, LayoutModel
from runtime.layout.orders import before, memory_order, refilled, row_major
from runtime.layout.permuted import unreduced_dims
from runtime.lowering import Order
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs, DimensionsAttrs, DotAttrs
from spmd.ops.dot import free_dims
from spmd.shape import ArrayShape

#: Largest number of arrays whose order one proposal may change.
MOST_FOLLOWERS = 48
#: Largest number of readers of a view, and of their preferred orders, that are considered.
MOST_ASKED = 8
MOST_ROUNDS = 4


def assign(model: LayoutModel) -> None:
    """Choose the orders of ``model``, until no proposal saves bytes or after ``MOST_ROUNDS`` rounds."""
    for _ in range(MOST_ROUNDS):
        conflicts = [
            (cost, number, x, operand)
            for number, x in enumerate(model.instructions())
            for operand, cost in model.costs(x).items()
        ]
        conflicts.sort(key=lambda conflict: (-conflict[0], conflict[1], conflict[3]))
        improved = False
        for _, _, x, operand in conflicts:
            if operand in model.costs(x):
                improved |= _settle(model, x, operand)
        if not improved:
            return


def _settle(model: LayoutModel, x: HloInstruction, operand: int) -> bool:
    """Resolve the conflict of operand ``operand`` of ``x``. Returns whether a proposal was applied.

    It applies the first proposal that is a single change and saves the entire cost of the conflict, else the proposal
    that saves most.
    """
    best, saved = None, 0
    wanted = model.costs(x)[operand]
    for writer, order in dict.fromkeys(proposals(model, x, operand)):
        sequence = _ChangeSequence(model)
        sequence.follow(writer, order)
        if len(sequence.changes) == 1 and sequence.saved >= wanted:
            return True
        if sequence.saved > saved:
            best, saved = sequence.best_prefix(), sequence.saved
        sequence.undo()
    for writer, order in best or ():
        model.write(writer, order)
    return best is not None


# ---- proposals
def proposals(
    model: LayoutModel, x: HloInstruction, operand: int
) -> Iterator[tuple[HloInstruction, Order]]:
    """Yield pairs of an instruction and an order to write it in, which may let ``x`` read this operand in order."""
    if operand == RESULT:
        yield from _upwards(model, x, row_major(len(x.dims)))
        return
    source = x.operand(operand)
    for wish in wishes(model, x, operand):
        yield from _upwards(model, source, wish)
    for writer, order in _downwards(model, x, operand):
        if order != model.order(writer):
            yield writer, order


def _downwards(
    model: LayoutModel, x: HloInstruction, operand: int
) -> Iterator[tuple[HloInstruction, Order]]:
    """Yield ``x``, or a reader of the loop element that its operand becomes, with the operand's memory order."""
    element = model.handed_over.get((x, operand))
    if element is not None:
        lies = memory_order(model.view(x.operand(operand)))
        yield element.readers[0], refilled(element.order, lies)
        return
    for order in _own_orders(model, x, operand):
        if model.can_write(x, order):
            yield x, order


def _upwards(
    model: LayoutModel, x: HloInstruction, wish: Order
) -> Iterator[tuple[HloInstruction, Order]]:
    """Yield the instruction that writes the memory of ``x``, with the order for which ``x`` has the order ``wish``.

    Nothing is yielded if there is no such order, or if the instruction cannot write it.
    """
    order: Order | None = wish
    while order is not None and (x.opcode in REPACKED or model.is_view(x)):
        order = before(x, order)
        x = x.operand(0)
        if not isinstance(x.shape, ArrayShape):
            return
    if order is None:
        return
    order = refilled(model.order(x), order)
    if order != model.order(x) and model.can_write(x, order):
        yield x, order


def wishes(model: LayoutModel, x: HloInstruction, operand: int) -> list[Order]:
    """Return the orders of an operand that ``x`` reads at no cost. Dimensions that are left out may be anywhere."""
    rank = len(x.operand(operand).dims)
    if x.opcode is Opcode.DOT:
        return _of_product(x, operand)
    if x.opcode in REPACKED:
        return [row_major(rank), *_of_readers(model, x)]
    exchanges_parts = x.opcode is Opcode.ALL_TO_ALL and isinstance(x.shape, ArrayShape)
    if exchanges_parts and rank == len(model.order(x)):
        return list(_with_free_position(x, model.order(x)))
    return [model.written_order(x, operand)]


def _of_product(x: HloInstruction, operand: int) -> list[Order]:
    """Return the orders of an operand of a product that need no copy: batch first, and either order of the others."""
    attrs = x.attrs_as(DotAttrs)
    sides = (attrs.lhs_batch, attrs.lhs_contracting), (attrs.rhs_batch, attrs.rhs_contracting)
    batch, contracting = sides[operand]
    free = free_dims(len(x.operand(operand).dims), batch, contracting)
    return [(*batch, *free, *contracting), (*batch, *contracting, *free)]


def _of_readers(model: LayoutModel, view: HloInstruction) -> list[Order]:
    """Return the orders that the readers of ``view`` read at no cost, translated to the view's operand."""
    found: dict[Order, None] = {}
    for user in view.users[:MOST_ASKED]:
        for i, operand in enumerate(user.operands):
            if operand is not view or user.parent not in model.times:
                continue
            if user.opcode in REPACKED or model.is_view(user):
                wanted = _of_readers(model, user)
            else:
                wanted = wishes(model, user, i) if isinstance(user.shape, ArrayShape) else []
            for wish in wanted:
                order = before(view, wish)
                if order is not None:
                    found[order] = None
    return list(found)[:MOST_ASKED]


def _with_free_position(x: HloInstruction, order: Order) -> Iterator[Order]:
    """Yield ``order``, then ``order`` with the split dimension of an all-to-all or concatenation at any position.

    The order of the operands does not determine the position of this dimension in the result.
    """
    yield order
    dimension = None
    if x.opcode is Opcode.ALL_TO_ALL:
        dimension = x.attrs_as(CollectiveAttrs).dimension
    elif x.opcode is Opcode.CONCATENATE:
        (dimension,) = x.attrs_as(DimensionsAttrs).dimensions
    if dimension is not None:
        rest = tuple(d for d in order if d != dimension)
        for position in range(len(order)):
            yield (*rest[:position], dimension, *rest[position:])


def _own_orders(model: LayoutModel, x: HloInstruction, operand: int) -> Iterator[Order]:
    """Yield orders of the result of ``x`` for which ``x`` reads this operand in its memory order."""
    if not isinstance(x.shape, ArrayShape) or not model.can_write(x, row_major(len(x.dims))):
        return
    lies = memory_order(model.view(x.operand(operand)))
    if x.opcode is Opcode.REDUCE:
        position = {d: i for i, d in enumerate(unreduced_dims(x))}
        lies = tuple(position[d] for d in lies if d in position)
    elif x.opcode is Opcode.DOT or len(x.operand(operand).dims) != len(x.dims):
        return
    yield from _with_free_position(x, refilled(model.order(x), lies))


# ---- sequences of changes
@dataclass
class _ChangeSequence:
    """Sequence of order changes that have been applied to ``model``, with the prefix that saves most.

    saved: bytes that the best prefix saves.
    """

    model: LayoutModel
    changes: list[Change] = field(default_factory=list)
    saved: int = 0
    _total: int = 0
    _best: int = 0

    def follow(self, x: HloInstruction, order: Order) -> None:
        """Write ``x`` in ``order``, then change the instructions whose costs rise, and so on (breadth first)."""
        work = [(x, order)]
        taken = {self.model.representative(x)}
        while work and len(self.changes) < MOST_FOLLOWERS:
            x, order = work.pop(0)
            for user, rise in self._write(x, order).rises.items():
                if rise > 0:
                    for neighbour, wanted in self._followers(user):
                        one = self.model.representative(neighbour)
                        if one not in taken:
                            taken.add(one)
                            work.append((neighbour, wanted))

    def _followers(self, x: HloInstruction) -> Iterator[tuple[HloInstruction, Order]]:
        """Yield changes that may lower the cost of ``x``: of ``x`` itself, or of the writers of its operands."""
        model = self.model
        changed = {model.representative(change.x) for change in self.changes}
        for operand in model.costs(x):
            if operand == RESULT or x.opcode is Opcode.DOT:
                continue
            element = model.handed_over.get((x, operand))
            writer = x if element is None else element.readers[0]
            if model.representative(writer) not in changed:
                yield from _downwards(model, x, operand)
            else:
                for wish in wishes(model, x, operand):
                    yield from _upwards(model, x.operand(operand), wish)

    def _write(self, x: HloInstruction, order: Order) -> Change:
        """Apply a change, and update the best prefix."""
        change = self.model.write(x, order)
        self.changes.append(change)
        self._total += change.added
        if -self._total > self.saved:
            self.saved, self._best = -self._total, len(self.changes)
        return change

    def best_prefix(self) -> list[tuple[HloInstruction, Order]]:
        """Return the instructions and new orders of the prefix that saves most."""
        return [(change.x, change.order) for change in self.changes[: self._best]]

    def undo(self) -> None:
        """Revert all changes in the model."""
        for change in reversed(self.changes):
            self.model.revert(change)
