"""Small values that depend on constants, iotas and repeated constants alone."""

from __future__ import annotations

from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.programs import NUMBERS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("constant-folding")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    forms = (_binary, _moved, _compared, _reduced, _converted, _sliced)
    made = p.choose(forms)(p)
    if made.array_shape.element_type is PrimitiveType.PRED:
        return p.module(made)
    return p.module(p.b.add(made, p.like(made)) if p.chance() else made)


def _known(p: Program, low: int = 0) -> HloInstruction:
    """A constant, a repeated one, or an iota, of at most 512 bytes."""
    dims, kind = p.dims(low, 3, most=32), p.element_type()
    if dims and p.chance(0.3):
        return p.b.iota(kind, dims, p.integer(0, len(dims) - 1))
    if dims and p.chance(0.4):
        return p.b.broadcast_scalar(p.constant(kind, ()), dims)
    return p.constant(kind, dims)


def _binary(p: Program) -> HloInstruction:
    x = _known(p)
    y = p.constant(x.array_shape.element_type, x.dims)
    opcode = p.choose((Opcode.ADD, Opcode.SUBTRACT, Opcode.MULTIPLY))
    return p.b.binary(opcode, *p.shuffled((x, y)))


def _moved(p: Program) -> HloInstruction:
    x = _known(p, 1)
    return p.b.reverse(p.b.transpose(x, p.shuffled(range(len(x.dims)))), (0,))


def _compared(p: Program) -> HloInstruction:
    x = _known(p)
    y = p.constant(x.array_shape.element_type, x.dims)
    direction = p.choose(("EQ", "NE"))
    return p.b.compare(x, y, direction)


def _reduced(p: Program) -> HloInstruction:
    x = _known(p, 1)
    return p.b.reduce(x, p.some(range(len(x.dims)), at_least=1), ReductionKind.SUM)


def _converted(p: Program) -> HloInstruction:
    target = p.element_type([t for t in NUMBERS if not t.is_complex])
    kinds = [t for t in NUMBERS if t is not target and not t.is_complex]
    return p.b.convert(p.constant(p.element_type(kinds), p.dims(0, 3, most=32)), target)


def _sliced(p: Program) -> HloInstruction:
    x = _known(p, 1)
    starts = [p.integer(0, n) for n in x.dims]
    return p.b.slice(x, starts, [p.integer(s, n) for s, n in zip(starts, x.dims, strict=True)])
