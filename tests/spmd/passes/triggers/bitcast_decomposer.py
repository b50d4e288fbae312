"""Bitcasts between layouts: other sizes of the same memory, elements of other widths, tiles, inside fusions too."""

from __future__ import annotations

from dataclasses import replace

from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.ops.attrs import FusionAttrs
from spmd.shape import ArrayShape, Layout, PrimitiveType
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_SIZES = (1, 2, 3, 4, 6, 8)
#: Pairs of types, the second of which is that many times as wide.
_WIDER = (
    (PrimitiveType.F32, PrimitiveType.F32, 1),
    (PrimitiveType.F32, PrimitiveType.S32, 1),
    (PrimitiveType.U8, PrimitiveType.U32, 4),
    (PrimitiveType.S32, PrimitiveType.U64, 2),
    (PrimitiveType.S32, PrimitiveType.C64, 2),
    (PrimitiveType.F32, PrimitiveType.C64, 2),
    (PrimitiveType.S4, PrimitiveType.S8, 2),
)


@trigger("bitcast-decomposer")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    narrow, wide, count = p.choose(_WIDER)
    dims = _dims(p)
    low = ArrayShape(narrow, _regrouped(p, (*dims, count)))
    high = ArrayShape(wide, _regrouped(p, dims))
    source, target = (low, high) if p.chance() else (high, low)
    x = p.parameter(_laid_out(p, source))
    if p.chance(0.3):
        x = p.b.copy(x)
        x.shape = _laid_out(p, source)
    return p.module(_bitcast(p, x, _laid_out(p, target)))


def _bitcast(p: Program, x: HloInstruction, target: ArrayShape) -> HloInstruction:
    if p.chance(0.7):
        return p.b.create(Opcode.BITCAST, (x,), shape=target)
    inside, (operand,) = p.computation("fused", x.shape)
    fused = p.returns(inside.create(Opcode.BITCAST, (operand,), shape=target))
    return p.b.create(Opcode.FUSION, (x,), FusionAttrs("kLoop"), calls=(fused,), shape=target)


def _dims(p: Program) -> tuple[int, ...]:
    while True:
        dims = tuple(p.choose(_SIZES) for _ in range(p.integer(0, 4)))
        if sum(size > 1 for size in dims) < 4:
            return dims


def _regrouped(p: Program, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return other sizes of the same product: neighbours joined, sizes cut, ones put in, the order changed."""
    found = list(dims)
    for _ in range(p.integer(0, 4)):
        at = p.integer(0, len(found) - 1) if found else 0
        move = p.choose(("join", "cut", "one", "swap"))
        if move == "join" and at + 1 < len(found):
            found[at : at + 2] = [found[at] * found[at + 1]]
        elif move == "cut" and found:
            part = next((f for f in (2, 3) if found[at] % f == 0), 1)
            found[at : at + 1] = [part, found[at] // part]
        elif move == "one":
            found.insert(at, 1)
        elif move == "swap" and at + 1 < len(found):
            found[at], found[at + 1] = found[at + 1], found[at]
    return tuple(found)


def _laid_out(p: Program, shape: ArrayShape) -> ArrayShape:
    if not shape.rank or p.chance(0.1):
        return shape
    layout = Layout(tuple(p.shuffled(range(shape.rank))))
    minor = shape.dims[layout.minor_to_major[0]]
    if p.chance(0.2) and minor % 2 == 0:
        layout = replace(layout, suffix="T(2)")
    return replace(shape, layout=layout)
