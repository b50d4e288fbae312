"""all-to-all of arrays: the parts are cut from one layout and joined in another.

Members move their parts anyway, so the cut dimension may have any position in the memory order, of the operand and of
the result:

    f32[2,32,2,128]{3,1,0,2} all-to-all(f32[2,32,2,128]{3,2,1,0} x), dimensions={2}

Each member receives 64 rows of 128 elements of the operand; in the result, the part from each member is contiguous.
"""

from __future__ import annotations

import math

from collectives.communicator.kinds.all_to_all import AllToAll
from collectives.communicator.kinds.op import CollectiveOp
from runtime.buffers.types import ArrayView
from runtime.emit.collective import blocking, collective_op, dense_operands
from runtime.lowering import (
    LOWERINGS,
    Device,
    Lowering,
    OpArrays,
    Order,
    Views,
    result_order,
)
from runtime.program.strides import StridedView
from runtime.program.thunks import Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs
from spmd.ops.groups import group_size

#: Pieces in which a member's part may be moved, each with strides of its own.
MOST_PIECES = 256


@dataclass(frozen=True)
class Exchange:
    """An all-to-all of one array over ``dimension``, whose size is the number of members.

    ``read`` and ``written``: dimension orders of operand and result, which agree in all dimensions but the cut one.
    """

    dims: tuple[int, ...]
    dimension: int
    read: Order
    written: Order

    @property
    def pieces(self) -> int:
        """The number of pieces in which a part is moved: the number of rows of the side with the longer rows."""
        if self.read == self.written:
            return 1
        count = 1
        for one, other in zip(self.read, self.written, strict=True):
            if self.dimension in (one, other):
                break
            count *= self.dims[one]
        return count

    def seen(self, view: StridedView, own: Order, other: Order) -> StridedView:
        """Return ``view`` row major in order ``own``, with a dimension of size 1 where ``other`` has the cut one."""
        cut, joined = own.index(self.dimension), other.index(self.dimension)
        dims = [view.dims[d] for d in own]
        if cut != joined:
            dims.insert(joined + 1 if joined > cut else joined, 1)
        found = view.transpose(own).reshape(tuple(dims))
        assert found is not None
        return found

    def cut_dimensions(self) -> tuple[int, int]:
        """Return the number of the cut dimension in ``seen`` of the operand, and of the result."""
        cut, joined = self.read.index(self.dimension), self.written.index(self.dimension)
        if cut == joined:
            return cut, joined
        return (cut, joined + 1) if joined > cut else (cut + 1, joined)


def exchange_of(instruction: HloInstruction, view: StridedView, written: Order) -> Exchange | None:
    """Return the exchange that makes a result in this order of an operand with this view; None if it must be copied
    first."""
    if not may_move(instruction):
        return None
    dimension = instruction.attrs_as(CollectiveAttrs).dimension
    assert dimension is not None
    rest = tuple(d for d in written if d != dimension)
    for position in range(len(written)):
        read = (*rest[:position], dimension, *rest[position:])
        if view.transpose(read).is_packed:
            exchange = Exchange(view.dims, dimension, read, written)
            return exchange if exchange.pieces <= MOST_PIECES else None
    return None


def may_move(instruction: HloInstruction) -> bool:
    """Return whether the size of the cut dimension is the group size, so that the result may have it elsewhere."""
    dimension = instruction.attrs_as(CollectiveAttrs).dimension
    if instruction.num_operands != 1 or dimension is None:
        return False
    return (
        instruction.dims[dimension] == group_size(instruction) and math.prod(instruction.dims) > 0
    )


def writes(instruction: HloInstruction, _: Order) -> bool:
    return may_move(instruction)


def layouts(instruction: HloInstruction, views: Views) -> dict[int, Order]:
    if not may_move(instruction):
        return dense_operands(instruction, views)
    order = result_order(instruction)
    return {} if exchange_of(instruction, views[0], order) is not None else {0: order}


def in_place(instruction: HloInstruction) -> tuple[tuple[int, int], ...]:
    """Return pairs (0, 0) of a row-major array, whose parts the members swap in place; none for the tuple variant."""
    if instruction.attrs_as(CollectiveAttrs).dimension is None or instruction.num_operands > 1:
        return ()
    order = result_order(instruction)
    return ((0, 0),) if order == tuple(range(len(order))) else ()


def emit_all_to_all(instruction: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    op = collective_op(instruction, device)
    if not may_move(instruction):
        return blocking(instruction.name, op, arrays)
    (operand,), (result,) = arrays.operands, arrays.results
    exchange = exchange_of(instruction, operand.view, result_order(instruction))
    assert exchange is not None
    read, written = exchange.read, exchange.written
    source = ArrayView(operand.slice, exchange.seen(operand.view, read, written))
    target = ArrayView(result.slice, exchange.seen(result.view, written, read))
    op = CollectiveOp(op.groups, AllToAll((), *exchange.cut_dimensions()))
    return blocking(instruction.name, op, OpArrays((source,), (target,)))


LOWERINGS.add(
    Opcode.ALL_TO_ALL,
    Lowering(emit_all_to_all, in_place=in_place, layouts=layouts, writes=writes),
)
