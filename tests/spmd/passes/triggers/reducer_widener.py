"""Reductions and windows by reducers of one or two results, of which one at least rounds to a narrow float."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.builder import Builder
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.ops.attrs import DimensionsAttrs, WindowAttrs
from spmd.ops.window import Window, WindowDimension
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import NUMBERS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_NARROW = (PrimitiveType.BF16, PrimitiveType.F16)


@trigger("reducer-widener")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kinds = [p.element_type(_NARROW), *(p.element_type(NUMBERS) for _ in range(p.integer(0, 1)))]
    dims = p.dims(1, 3)
    reducer = _reducer(p, kinds)
    operands = [p.value(kind, dims) for kind in kinds]
    operands += [p.b.scalar(kind, p.integer(0, 3)) for kind in kinds]
    if p.chance():
        opcode, attrs = Opcode.REDUCE, DimensionsAttrs(tuple(p.some(range(len(dims)))))
        made = p.b.create(opcode, operands, attrs, calls=(reducer,))
    else:
        size = WindowDimension(size=p.integer(1, 3), padding_low=1, padding_high=2)
        window = WindowAttrs(Window((size,) * len(dims)))
        made = p.b.create(Opcode.REDUCE_WINDOW, operands, window, calls=(reducer,))
    results = [made] if len(kinds) == 1 else [p.b.get_tuple_element(made, i) for i in range(2)]
    return p.module(*p.some(results, at_least=1))


def _reducer(p: Program, kinds: Sequence[PrimitiveType]) -> HloComputation:
    scalars = [ArrayShape(kind, ()) for kind in kinds]
    b, parameters = p.computation("reducer", *scalars, *scalars)
    pairs = zip(kinds, parameters[: len(kinds)], parameters[len(kinds) :], strict=True)
    results = [_combined(p, b, *pair) for pair in pairs]
    return p.returns(results[0] if len(results) == 1 else b.tuple(results))


def _combined(
    p: Program, b: Builder, kind: PrimitiveType, total: HloInstruction, element: HloInstruction
) -> HloInstruction:
    """Half of the total, and the element, or that and a constant."""
    half = b.multiply(total, b.scalar(kind, p.choose((0.5, 1, 0.25) if kind.is_floating else (1,))))
    other = element if p.chance() else b.add(element, b.scalar(kind, 1))
    return b.add(half, other)
