"""Reductions over devices of which every device knows the result already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from collectives.passes.reducing import Reducing, reducing
from collectives.passes.replication import Replication
from spmd.builder import Builder, ModuleScope
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.instruction_pass import Simplifier, Simplify
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at
from spmd.shape import PrimitiveType, TupleShape

#: Reductions of equal values that return that value.
_CHOOSING = (ReductionKind.MIN, ReductionKind.MAX, ReductionKind.AND, ReductionKind.OR)


@register_pass
@dataclass(frozen=True)
class AllReduceSimplifier(Simplifier):
    """all-reduce(x) where each device meets itself alone         =>  x    and so for reduce-scatter
    all-reduce(x) where all members of each group have one x   =>  x multiplied by their number, for sums
                                                               =>  x, for minimum, maximum, and, or

    Which devices have equal values, Replication tells. Groups of several sizes have no one number to multiply by, and
    where it is no number of the element type (257 in bf16), the all-reduce stays.
    """

    name: ClassVar[str] = "all-reduce-simplifier"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.ALL_REDUCE, Opcode.REDUCE_SCATTER)

    def simplify(self, module: HloModule) -> Simplify:
        scope, replication = ModuleScope(module), Replication(module)

        def simpler(x: HloInstruction) -> HloInstruction | None:
            what = reducing(x)
            if what is None:
                return None
            if what.groups.size == 1:
                return _result_of_parts(x, x.operands, builder_at(x, scope))
            if x.opcode is not Opcode.ALL_REDUCE:
                return None
            if not all(replication.is_equal_within(o, what.groups) for o in x.operands):
                return None
            b = builder_at(x, scope)
            parts = [part for o in x.operands if (part := of_equal(o, what, b)) is not None]
            if len(parts) < x.num_operands:
                return None
            result = _result_of_parts(x, parts, b)
            replication.learn_equal(result, x)
            return result

        return simpler


def _result_of_parts(
    x: HloInstruction, parts: Sequence[HloInstruction], b: Builder
) -> HloInstruction:
    return b.tuple(parts) if isinstance(x.shape, TupleShape) else parts[0]


def of_equal(x: HloInstruction, what: Reducing, b: Builder) -> HloInstruction | None:
    """Return the reduction of ``x`` if all members of a group hold the same value; None for kinds that have no such
    rule."""
    count = what.groups.size
    if what.kind in _CHOOSING:
        return x
    if count is None or what.kind not in (ReductionKind.SUM, ReductionKind.XOR):
        return None
    if what.kind is ReductionKind.XOR:
        return x if count % 2 else b.full(x.array_shape, 0)
    factor = as_number(count, x.array_shape.element_type)
    return None if factor is None else b.multiply(x, b.full(x.array_shape, factor))


def as_number(count: int, element_type: PrimitiveType) -> int | None:
    """Return ``count`` as a number of the element type, integers modulo their range. Returns None if the type has no
    such number, or is complex.
    """
    if element_type.is_floating:
        return count if float(np.asarray(count).astype(element_type.numpy)) == count else None
    if not element_type.is_integer:
        return None
    modulus = 1 << element_type.bits
    rest = count % modulus
    return rest - modulus if element_type.is_signed_integer and rest >= modulus // 2 else rest
