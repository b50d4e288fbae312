"""broadcast: no-ops, chains, and computing before repeating instead of after."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops import definition
from spmd.passes.algebraic.match import broadcast_dims, non_unit
from spmd.passes.algebraic.rules import simplifies


@simplifies(Opcode.BROADCAST)
def broadcast_to_itself(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """A broadcast that repeats nothing => the operand, reshaped. A scalar stays a broadcast, since constants are
    recognized in that form.
    """
    operand, dims = x.operand(0), broadcast_dims(x)
    if operand.dims == x.dims and list(dims) == sorted(dims):
        return operand
    same_size = operand.array_shape.num_elements == x.array_shape.num_elements
    if not operand.dims or not same_size or 0 in x.dims or list(dims) != sorted(dims):
        return None
    return b.reshape(operand, x.dims)


@simplifies(Opcode.BROADCAST)
def broadcast_of_broadcast(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """broadcast(broadcast(a)) => broadcast(a)"""
    inner = x.operand(0)
    if inner.opcode is not Opcode.BROADCAST:
        return None
    outer = broadcast_dims(x)
    return b.broadcast(inner.operand(0), [outer[d] for d in broadcast_dims(inner)], x.dims)


@simplifies(Opcode.BROADCAST)
def broadcast_of_unit_reshape(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """broadcast(reshape(a)) => broadcast(a) if the reshape only adds or drops dimensions of size 1.

    If the reshape dropped a unit dimension of ``a``, the result has no dimension for it, and nothing is changed.
    """
    inner = x.operand(0)
    if inner.opcode is not Opcode.RESHAPE:
        return None
    source = inner.operand(0)
    if 1 in source.dims or non_unit(inner.array_shape) != source.dims:
        return None
    dims = [d for d, n in zip(broadcast_dims(x), inner.dims, strict=True) if n != 1]
    return b.broadcast(source, dims, x.dims)


def sink_broadcasts(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """f(broadcast(a), broadcast(c)) => broadcast(f(a, c)), scalars being repeated to the size of ``a``.

    m = f32[8,4] multiply(f32[8,4] broadcast(f32[4] a), f32[8,4] broadcast(f32[] c))
      =>  f32[8,4] broadcast(f32[4] multiply(a, f32[4] broadcast(c)))
    """
    shaped = _widest(x)
    if shaped is None:
        return None
    small, dims = shaped.operand(0), broadcast_dims(shaped)
    operands = [_narrowed(operand, small, b) for operand in x.operands]
    result = b.create(
        x.opcode,
        operands,
        x.attrs,
        shape=x.array_shape.with_dims(small.dims).without_layout(),
        calls=x.called_computations,
    )
    return b.broadcast(result, dims, x.dims)


def _widest(x: HloInstruction) -> HloInstruction | None:
    """Return the broadcast with the largest operand. Returns None unless all are broadcasts of that operand's shape
    along the same dimensions, or of scalars.
    """
    if not x.num_operands or any(operand.opcode is not Opcode.BROADCAST for operand in x.operands):
        return None
    if any(operand.dims != x.dims for operand in x.operands):
        return None
    widest = max(x.operands, key=lambda operand: operand.operand(0).array_shape.rank)
    small, dims = widest.operand(0), broadcast_dims(widest)
    if small.array_shape.num_elements >= x.array_shape.num_elements:
        return None
    for operand in x.operands:
        source = operand.operand(0)
        if source.dims and (source.dims != small.dims or broadcast_dims(operand) != dims):
            return None
    return widest


def _narrowed(operand: HloInstruction, small: HloInstruction, b: Builder) -> HloInstruction:
    source = operand.operand(0)
    return source if source.dims == small.dims else b.broadcast_scalar(source, small.dims)


_SUNK = (
    opcode
    for opcode in Opcode
    if definition(opcode).elementwise and opcode not in (Opcode.COPY, Opcode.MAP)
)
simplifies(*_SUNK)(sink_broadcasts)
