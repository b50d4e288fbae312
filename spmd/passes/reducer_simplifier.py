"""Reducers that do something to their elements first become known ones of arrays to which it is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.combining import Combining, combinings, is_plain
from spmd.ops.scalar_function import is_elementwise
from spmd.passes.instruction_pass import OpExpander
from spmd.passes.interface import register_pass
from spmd.passes.loop_values import cone
from spmd.passes.on_arrays import on_arrays
from spmd.passes.rewrite import is_annotated
from spmd.shape import TupleShape


@register_pass
@dataclass(frozen=True)
class ReducerSimplifier(OpExpander):
    """reduce(x, i), to_apply=maximum(total, abs(element))  =>  reduce(abs(x), i), to_apply=maximum

    and a result each where a reducer has several that do not depend on each other's totals. So do reduce-window and
    scatter, whose elements are updates. What is known can be vectorized, fused, and split over devices: totals of
    devices combine by maximum, but not by the reducer, to which they are no elements.
    """

    name: ClassVar[str] = "reducer-simplifier"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.REDUCE, Opcode.REDUCE_WINDOW, Opcode.SCATTER)

    def expand(self, x: HloInstruction, b: Builder) -> HloInstruction | None:
        reducer, several = x.to_apply, isinstance(x.shape, TupleShape)
        found = combinings(reducer)
        if found is None or is_plain(reducer, found) or (several and is_annotated(x)):
            return None
        functions = [cone(one.element) for one in found]
        if not all(map(is_elementwise, functions)):
            return None
        count = len(found)
        elements = x.operands[-count:] if x.opcode is Opcode.SCATTER else x.operands[:count]
        arrays = dict(zip(reducer.parameters[count:], elements, strict=True))
        results = [
            _known(x, number, one, on_arrays(function, arrays, b)[one.element], b)
            for number, (one, function) in enumerate(zip(found, functions, strict=True))
        ]
        return b.tuple(results) if several else results[0]


def _known(
    x: HloInstruction, number: int, one: Combining, made: HloInstruction, b: Builder
) -> HloInstruction:
    """Create result ``number`` of ``x`` by itself, with a reducer of a known kind."""
    reducer = b.scope.reducer(one.kind, made.array_shape.element_type)
    return b.create(x.opcode, _operands(x, number, made), x.attrs, calls=(reducer,))


def _operands(x: HloInstruction, number: int, made: HloInstruction) -> Sequence[HloInstruction]:
    count = x.num_operands // 2
    if x.opcode is Opcode.SCATTER:
        return x.operand(number), x.operand(count), made
    return made, x.operand(count + number)
