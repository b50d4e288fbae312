"""Scatters at one index vector, inside the operand or not, by several combiners."""

from __future__ import annotations

from spmd.hlo import HloComputation, HloModule, Opcode
from spmd.ops.attrs import ScatterAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.index_vectors import one_vector
from tests.spmd.passes.triggers.programs import NUMBERS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("scatter-simplifier")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    x = p.value(p.element_type((*NUMBERS, PrimitiveType.PRED)), p.dims(1, empty=False))
    kind = x.array_shape.element_type
    v = one_vector(p, x.dims)
    window = [n for d, n in enumerate(v.sizes) if d not in v.dropped]
    rank = len(window) + v.batch_rank
    window_dims = tuple(sorted(p.shuffled(range(rank))[: len(window)]))
    sizes = iter(window)
    dims = [next(sizes) if d in window_dims else 1 for d in range(rank)]
    update = p.value(kind, dims)
    attrs = ScatterAttrs(window_dims, v.dropped, v.map, v.index_vector_dim)
    scattered = p.b.create(
        Opcode.SCATTER, (x, v.indices, update), attrs, calls=(_combiner(p, kind),)
    )
    return p.module(p.after(scattered), *p.some([x]))


def _combiner(p: Program, kind: PrimitiveType) -> HloComputation:
    scalar = ArrayShape(kind, ())
    b, (old, new) = p.computation("combine", scalar, scalar)
    if p.chance():
        return p.returns(new)
    if kind is PrimitiveType.PRED:
        return p.returns(b.binary(p.choose((Opcode.AND, Opcode.OR)), old, new))
    opcodes = [Opcode.ADD, Opcode.MULTIPLY]
    if not kind.is_complex:
        opcodes += [Opcode.MINIMUM, Opcode.MAXIMUM]
    return p.returns(b.binary(p.choose(opcodes), old, new))
