"""Reducers that round to narrow floats compute in f32."""

from __future__ import annotations

from typing import ClassVar

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.reduction import reduction_kind
from spmd.ops.scalar_function import widened
from spmd.passes.instruction_pass import OpExpander
from spmd.passes.interface import register_pass
from spmd.shape import ArrayShape, TupleShape


@register_pass
@dataclass(frozen=True)
class ReducerWidener(OpExpander):
    """r = bf16[] reduce(x, i), to_apply=f  =>  c = f32[] reduce(f32(x), f32(i)), to_apply=f in f32; r = bf16(c)

    where f is no known operation and rounds to a float narrower than f32. So do windows. A known operation keeps its
    totals in f32 anyway. Totals that are rounded at each step stop to grow: 1 + 2^-9 is 1 in bf16.
    """

    name: ClassVar[str] = "reducer-widener"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.REDUCE, Opcode.REDUCE_WINDOW)

    def expand(self, x: HloInstruction, b: Builder) -> HloInstruction | None:
        reducer = x.to_apply
        wide = None if reduction_kind(reducer) is not None else widened(reducer, b.scope.module)
        if wide is None:
            return None
        count = x.num_operands // 2
        totals, elements = wide.parameters[:count], wide.parameters[count:]
        operands = [
            b.as_type(operand, parameter.array_shape.element_type)
            for operand, parameter in zip(x.operands, (*elements, *totals), strict=True)
        ]
        made = b.create(x.opcode, operands, x.attrs, calls=(wide,))
        if isinstance(x.shape, ArrayShape):
            return b.convert(made, x.shape.element_type)
        assert isinstance(x.shape, TupleShape)
        results = []
        for number, shape in enumerate(x.shape.elements):
            assert isinstance(shape, ArrayShape)
            results.append(b.as_type(b.get_tuple_element(made, number), shape.element_type))
        return b.tuple(results)
