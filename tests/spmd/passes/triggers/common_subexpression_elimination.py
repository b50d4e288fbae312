"""The same value computed more than once: the same operands, swapped ones, equal reducers, equal constants."""

from __future__ import annotations

from spmd.device import IotaTile, ReductionKind, ReplicaGroups
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.ops.reduction import build_reducer
from tests.spmd.passes.triggers.programs import NUMBERS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("common-subexpression-elimination")
def modules(rng: Rng) -> HloModule:
    forms = (_binary, _swapped, _constants, _reductions, _chains, _collectives)
    form = forms[int(rng.integers(len(forms)))]
    p = Program(rng, partitions=2 if form is _collectives else 1)
    first, second = form(p)
    return p.module(p.after(first), p.after(second))


Pair = tuple[HloInstruction, HloInstruction]


def _operands(p: Program) -> Pair:
    x = p.value(p.element_type(), p.dims())
    return x, p.like(x)


def _binary(p: Program) -> Pair:
    x, y = _operands(p)
    opcode = p.choose((Opcode.ADD, Opcode.SUBTRACT, Opcode.MULTIPLY))
    return p.b.binary(opcode, x, y), p.b.binary(opcode, x, y)


def _swapped(p: Program) -> Pair:
    x, y = _operands(p)
    opcode = p.choose((Opcode.ADD, Opcode.MULTIPLY))
    return p.b.binary(opcode, x, y), p.b.binary(opcode, y, x)


def _constants(p: Program) -> Pair:
    x, _ = _operands(p)
    value = p.integer(0, 3)
    one, two = (p.b.full(x.array_shape, value) for _ in range(2))
    return p.b.add(x, one), p.b.multiply(x, two)


def _reductions(p: Program) -> Pair:
    """Two computations that are the same program."""
    x = p.value(p.element_type(), p.dims(1))
    kind, element_type = ReductionKind.SUM, x.array_shape.element_type
    dims = DimensionsAttrs(tuple(p.some(range(len(x.dims)), at_least=1)))
    first, second = (
        p.b.create(
            Opcode.REDUCE,
            (x, p.b.identity(kind, element_type)),
            dims,
            calls=(build_reducer(p.result, kind, element_type),),
        )
        for _ in range(2)
    )
    return first, second


def _collectives(p: Program) -> Pair:
    """Return a pair of all-reduces on two channels."""
    x = p.value(p.element_type(NUMBERS), p.dims())
    groups = p.choose(
        (
            ReplicaGroups(iota=IotaTile.of((1, 2))),
            ReplicaGroups(((1, 0),)),
            ReplicaGroups(((0,), (1,))),
        )
    )
    first, second = (p.b.all_reduce(x, groups, ReductionKind.SUM) for _ in range(2))
    return first, second


def _chains(p: Program) -> Pair:
    """Equal from the first operation to the last."""
    x, y = _operands(p)
    first, second = (p.b.multiply(p.b.subtract(p.b.negate(x), y), p.b.negate(x)) for _ in range(2))
    return first, second
