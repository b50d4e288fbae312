"""Kernels that save time as one: chains, copies into several readers, several results, small ones alike, views between."""

from __future__ import annotations

from collections.abc import Callable

import runtime.compile
import runtime.fusion.priority_fusion
from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

assert runtime.compile, "lowerings are registered: what has none is not fused"
assert runtime.fusion.priority_fusion, "the pass is registered"

#: Types whose arithmetic has an emitter.
_TYPES = (
    PrimitiveType.F32,
    PrimitiveType.F32,
    PrimitiveType.F64,
    PrimitiveType.BF16,
    PrimitiveType.S32,
    PrimitiveType.U8,
)
_BINARY = (Opcode.ADD, Opcode.MULTIPLY, Opcode.SUBTRACT, Opcode.MAXIMUM, Opcode.MINIMUM)

Results = tuple[HloInstruction, ...]


@trigger("priority-fusion")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    p.result.stage = Stage.PARTITIONED
    results = p.choose(_FORMS)(p)
    return p.module(*results)


def _array(p: Program) -> HloInstruction:
    """Return an array with elements, since without any there is no kernel."""
    return p.parameter(ArrayShape(p.element_type(_TYPES), p.dims(0, 3, empty=False)))


def _step(p: Program, x: HloInstruction) -> HloInstruction:
    """One more operation, of another operand or of itself."""
    kind = x.array_shape.element_type
    if p.chance(0.3) and not kind.is_unsigned_integer:
        return p.b.negate(x)
    other = p.choose((_same, _repeated, _full, _counted))(p, x)
    pair = p.shuffled((x, other))
    return p.b.binary(p.choose(_BINARY), *pair)


def _same(p: Program, x: HloInstruction) -> HloInstruction:
    return p.parameter(x.array_shape)


def _repeated(p: Program, x: HloInstruction) -> HloInstruction:
    """An operand of some of the dimensions."""
    kept = p.some(range(len(x.dims)))
    small = p.parameter(ArrayShape(x.array_shape.element_type, tuple(x.dims[d] for d in kept)))
    return p.b.broadcast(small, kept, x.dims)


def _full(p: Program, x: HloInstruction) -> HloInstruction:
    return p.b.full(x.array_shape, p.integer(1, 3))


def _counted(p: Program, x: HloInstruction) -> HloInstruction:
    if not x.dims:
        return _full(p, x)
    return p.b.iota(x.array_shape.element_type, x.dims, p.integer(0, len(x.dims) - 1))


def _steps(p: Program, x: HloInstruction, least: int = 1) -> HloInstruction:
    for _ in range(p.integer(least, 4)):
        x = _step(p, x)
    return x


def _view(p: Program, x: HloInstruction) -> HloInstruction:
    rank = len(x.dims)
    if rank and p.chance():
        return p.b.transpose(x, [int(d) for d in p.rng.permutation(rank)])
    return p.b.reshape(x, (x.array_shape.num_elements,))


# ---- forms
def _chain(p: Program) -> Results:
    return (_steps(p, _array(p), 2),)


def _viewed_chain(p: Program) -> Results:
    return (_steps(p, _view(p, _steps(p, _array(p)))),)


def _copied(p: Program) -> Results:
    """A cheap producer of two readers whose results are not of one kernel."""
    x = _steps(p, _array(p))
    return tuple(_reduced(p, _steps(p, x, 2)) for _ in range(2))


def _reduced(p: Program, x: HloInstruction) -> HloInstruction:
    return p.b.reduce(x, tuple(range(len(x.dims))), ReductionKind.MAX)


def _result_and_reader(p: Program) -> Results:
    x = _steps(p, _array(p))
    return x, _steps(p, x)


def _siblings(p: Program) -> Results:
    x = _array(p)
    return tuple(_steps(p, x) for _ in range(p.integer(2, 3)))


def _updates(p: Program) -> Results:
    """Small arrays of one shape, each updated by itself."""
    first = _array(p)
    arrays = [first, *(p.parameter(first.array_shape) for _ in range(p.integer(1, 4)))]
    return tuple(_steps(p, x) for x in arrays)


_FORMS: tuple[Callable[[Program], Results], ...] = (
    _chain,
    _viewed_chain,
    _copied,
    _result_and_reader,
    _siblings,
    _updates,
)
