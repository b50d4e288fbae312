"""Products of dequantized values, with and without scales, transposed, reshaped or sliced first, of random types."""

from __future__ import annotations

from spmd.hlo import HloInstruction, HloModule
from spmd.ops.attrs import DotAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_E4, _E5 = PrimitiveType.F8E4M3FN, PrimitiveType.F8E5M2
_PAIRS = ((_E4, _E4), (_E4, _E5), (_E5, _E4))


@trigger(
    "f8-dot-rewriter",
    finite="the order of scaling decides which of 0, inf and nan an infinite scale gives",
)
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    wide = p.choose((PrimitiveType.F32, PrimitiveType.F32, PrimitiveType.BF16))
    batch = (p.integer(1, 3),) if p.chance(0.3) else ()
    m, n, k = (p.choose((16, 32)) for _ in range(3))
    first = len(batch)
    lhs_kind, rhs_kind = p.choose(_PAIRS)
    down, across = p.chance(), p.chance()
    lhs = _dequantized(p, lhs_kind, wide, (*batch, *((k, m) if down else (m, k))))
    rhs = _dequantized(p, rhs_kind, wide, (*batch, *((n, k) if across else (k, n))))
    numbers = tuple(range(first))
    attrs = DotAttrs((first + (not down),), (first + across,), numbers, numbers)
    return p.module(p.after(p.b.dot(lhs, rhs, attrs)))


def _dequantized(
    p: Program, kind: PrimitiveType, wide: PrimitiveType, dims: tuple[int, ...]
) -> HloInstruction:
    order = p.shuffled(range(len(dims))) if p.chance(0.3) else list(range(len(dims)))
    longer = p.integer(0, 2) if p.chance(0.3) else 0
    taken = [dims[order.index(d)] for d in range(len(dims))]
    taken[0] += longer
    x = p.b.convert(p.parameter(ArrayShape(kind, tuple(taken))), wide)
    if p.chance(0.8):
        scale = p.parameter(ArrayShape(wide, p.choose(((), (1,)))))
        factor = p.b.broadcast_scalar(p.b.reshape_to(scale, ()), x.dims)
        # A divisor that may be 0 gives values that are not finite.
        x = p.b.multiply(x, factor) if p.chance() else p.b.multiply(factor, x)
    if longer:
        x = p.b.slice(x, (0,) * len(taken), (taken[0] - longer, *taken[1:]))
    return p.b.transpose_by(x, order)
