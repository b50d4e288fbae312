"""reshape: no-ops, chains, and reshapes of repeated values."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.passes.algebraic.match import broadcast_dims, non_unit
from spmd.passes.algebraic.rules import simplifies


@simplifies(Opcode.RESHAPE)
def reshape_to_itself(x: HloInstruction, _: Builder) -> HloInstruction | None:
    """reshape to the same sizes => x"""
    return x.operand(0) if x.dims == x.operand(0).dims else None


@simplifies(Opcode.RESHAPE)
def reshape_of_reshape(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """reshape(reshape(a)) => reshape(a)"""
    inner = x.operand(0)
    return b.reshape(inner.operand(0), x.dims) if inner.opcode is Opcode.RESHAPE else None


@simplifies(Opcode.RESHAPE)
def reshape_of_broadcast(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """reshape(broadcast(a)) => broadcast(a) if ``a`` is a scalar or the reshape only adds and drops unit dimensions"""
    inner = x.operand(0)
    if inner.opcode is not Opcode.BROADCAST:
        return None
    source = inner.operand(0)
    if not source.dims:
        return b.broadcast_scalar(source, x.dims)
    if 1 in source.dims or non_unit(inner.array_shape) != non_unit(x.array_shape):
        return None
    # The k-th dimension of a size other than 1 stays the k-th.
    rank_of = {d: k for k, d in enumerate(d for d, n in enumerate(inner.dims) if n != 1)}
    non_unit_dims = [d for d, n in enumerate(x.dims) if n != 1]
    return b.broadcast(source, [non_unit_dims[rank_of[d]] for d in broadcast_dims(inner)], x.dims)
