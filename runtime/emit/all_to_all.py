"""Lowering of all-to-all, including array all-to-alls whose operand and result have different layouts.

The members of a group copy their parts in any case. So the split dimension may have a different position in the memory
order of the operand than in that of the result:

    f32[2,32,2,128]{3,1,0,2} all-to-all(f32[2,32,2,128]{3,2,1,0} x), dimensions={2}

The part for each member consists of 64 rows of 128 elements in the operand, and is contiguous in the result.
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

#: Largest number of strided pieces in which the part of a member may be moved.
MOST_PIECES = 256


@dataclass(frozen=True)
class Exchange:
    """All-to-all of one array of sizes ``dims``, split along ``dimension``, whose size is the group size.

    read, written: memory orders of the dimensions of operand and result, slowest first. Without the split dimension,
    both orders are equal.
    """

    dims: tuple[int, ...]
    dimension: int
    read: Order
    written: Order

    @property
    def pieces(self) -> int:
        """Number of strided pieces in which the part of a member is moved."""
        if self.read == self.written:
            return 1
        count = 1
        for one, other in zip(self.read, self.written, strict=True):
            if self.dimension in (one, other):
                break
            count *= self.dims[one]
        return count

    def seen(self, view: StridedView, own: Order, other: Order) -> StridedView:
        """Return ``view`` transposed to the memory order ``own``, in which it is row-major.

        If the split dimension has another position in the order ``other``, a dimension of size 1 is inserted there.
        """
        cut, joined = own.index(self.dimension), other.index(self.dimension)
        dims = [view.dims[d] for d in own]
        if cut != joined:
            dims.insert(joined + 1 if joined > cut else joined, 1)
        found = view.transpose(own).reshape(tuple(dims))
        assert found is not None
        return found

    def cut_dimensions(self) -> tuple[int, int]:
        """Return the number of the split dimension in the view ``seen`` of the operand, and in that of the result."""
        cut, joined = self.read.index(self.dimension), self.written.index(self.dimension)
        if cut == joined:
            return cut, joined
        return (cut, joined + 1) if joined > cut else (cut + 1, joined)


def exchange_of(instruction: HloInstruction, view: StridedView, written: Order) -> Exchange | None:
    """Return the exchange from an operand with layout ``view`` to a result in the memory order ``written``.

    Returns None if the operand must be copied to the order of the result first.
    """
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
    """Return whether the split dimension of the all-to-all ``instruction`` may change its position in memory order.

    It may for an array all-to-all whose split dimension has the group size as its size.
    """
    dimension = instruction.attrs_as(CollectiveAttrs).dimension
    if instruction.num_operands != 1 or dimension is None:
        return False
    return (
        instruction.dims[dimension] == group_size(instruction) and math.prod(instruction.dims) > 0
    )


def writes(instruction: HloInstruction, _: Order) -> bool:
    """Return whether the result can be written in any dimension order."""
    return may_move(instruction)


def layouts(instruction: HloInstruction, views: Views) -> dict[int, Order]:
    """Return the operands that must be copied first, with the dimension order of each copy."""
    if not may_move(instruction):
        return dense_operands(instruction, views)
    order = result_order(instruction)
    return {} if exchange_of(instruction, views[0], order) is not None else {0: order}


def in_place(instruction: HloInstruction) -> tuple[tuple[int, int], ...]:
    """Return ((0, 0),) for a row-major array, whose parts the members can exchange in place, else no pairs.

    A tuple all-to-all cannot run in place.
    """
    if instruction.attrs_as(CollectiveAttrs).dimension is None or instruction.num_operands > 1:
        return ()
    order = result_order(instruction)
    return ((0, 0),) if order == tuple(range(len(order))) else ()


def emit_all_to_all(instruction: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    """Return the start and the done of an all-to-all, on views that put its split dimension in memory order."""
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
