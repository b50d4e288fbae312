"""Arrays with run-time sizes, summed, multiplied, rearranged and asked for their sizes."""

from __future__ import annotations

from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.ops.attrs import DimensionsAttrs, DotAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import FLOATS, INTEGERS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_S32 = PrimitiveType.S32


@trigger("dynamic-padder")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind = p.element_type((*FLOATS, *INTEGERS))
    x = p.value(kind, p.dims(2, 3, empty=False))
    d = p.integer(0, len(x.dims) - 1)
    size = _size(p, x.dims[d])
    sized = _sized(p, x, d, size)
    if p.chance(0.2):
        sized = _sized(p, sized, d, _size(p, x.dims[d]))
    sized = p.b.multiply(sized, sized) if p.chance() else sized
    order = p.shuffled(range(len(x.dims))) if p.chance() else list(range(len(x.dims)))
    turned = p.b.transpose(sized, order)
    place = order.index(d)
    results = [p.b.create(Opcode.GET_DIMENSION_SIZE, (turned,), DimensionsAttrs((place,)))]
    if p.chance(0.8):
        results.append(_summed(p, turned, place))
    if p.chance():
        results.append(_product(p, turned, place))
    if p.chance(0.4):
        results.append(_flat_sum(p, turned, place))
    return p.module(*results, *p.some([x]))


def _size(p: Program, bound: int) -> HloInstruction:
    """A number between 0 and ``bound`` that only a run tells."""
    given = p.parameter(ArrayShape(_S32, ()))
    raised = p.b.add(given, p.b.scalar(_S32, p.integer(0, bound)))
    return p.b.clamp(p.b.scalar(_S32, 0), raised, p.b.scalar(_S32, bound))


def _sized(p: Program, x: HloInstruction, d: int, size: HloInstruction) -> HloInstruction:
    return p.b.create(Opcode.SET_DIMENSION_SIZE, (x, size), DimensionsAttrs((d,)))


def _summed(p: Program, x: HloInstruction, place: int) -> HloInstruction:
    """Return a reduction over the dimension with a size, and maybe over others.

    It does not always start from the neutral element.
    """
    kinds = (ReductionKind.SUM, ReductionKind.MAX, ReductionKind.MIN, ReductionKind.PRODUCT)
    reduced = sorted({place, *p.some(range(len(x.dims)))})
    start = p.parameter(ArrayShape(x.array_shape.element_type, ())) if p.chance() else None
    return p.b.reduce(x, reduced, p.choose(kinds), start)


def _product(p: Program, x: HloInstruction, place: int) -> HloInstruction:
    """Contracted over the dimension with a size, with a whole array."""
    other = p.value(x.array_shape.element_type, (x.dims[place], p.integer(1, 4)))
    sized = _sized(
        p, other, 0, p.b.create(Opcode.GET_DIMENSION_SIZE, (x,), DimensionsAttrs((place,)))
    )
    return p.b.dot(x, sized, DotAttrs((place,), (0,)))


def _flat_sum(p: Program, x: HloInstruction, place: int) -> HloInstruction:
    """The elements that count, one after the other, and each times its number: the order matters."""
    size = p.b.create(Opcode.GET_DIMENSION_SIZE, (x,), DimensionsAttrs((place,)))
    count = p.b.multiply(size, p.b.scalar(_S32, x.array_shape.num_elements // x.dims[place]))
    bound = (x.array_shape.num_elements,)
    flat = p.b.create(
        Opcode.DYNAMIC_RESHAPE,
        (x, count),
        shape=ArrayShape(x.array_shape.element_type, bound, dynamic=(True,)),
    )
    weights = p.b.convert(p.b.iota(_S32, bound, 0), x.array_shape.element_type)
    sized = _sized(p, weights, 0, count)
    return p.b.reduce(p.b.multiply(flat, sized), (0,), ReductionKind.SUM)
