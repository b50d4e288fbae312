"""Updates of the random state: in the entry, in loops, in branches, in loops within loops."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.ops.attrs import RngStateAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.branches import conditional
from tests.spmd.passes.triggers.loops import counted_loop, results
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_STATE = ArrayShape(PrimitiveType.U64, (2,))


@trigger("rng-state-threading")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    x = p.parameter(_STATE)
    forms = (lambda: _next(p, p.b), lambda: _loop(p, x), lambda: _branches(p, x))
    made = [p.choose(forms)() for _ in range(p.integer(1, 4))]
    return p.module(*made)


def _next(p: Program, b: Builder) -> HloInstruction:
    delta = p.choose((1, 5, 2**63 - 1))
    return b.create(Opcode.RNG_GET_AND_UPDATE_STATE, (), RngStateAttrs(delta))


def _loop(p: Program, x: HloInstruction) -> HloInstruction:
    nested = p.chance(0.3)

    def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        (y,) = elements
        if nested:
            inside = Program.__new__(Program)
            inside.rng, inside.result, inside.b = p.rng, p.result, b
            y = results(inside, counted_loop(inside, p.integer(0, 2), [y], innermost), 0)[0]
        return [b.add(y, _next(p, b))]

    def innermost(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        return [b.multiply(elements[0], _next(p, b))]

    return results(p, counted_loop(p, p.integer(0, 3), [x], body), 0)[0]


def _branches(p: Program, x: HloInstruction) -> HloInstruction:
    """One of them draws."""

    def branch(b: Builder, elements: list[HloInstruction], number: int) -> HloInstruction:
        return elements[0] if number else b.add(elements[0], _next(p, b))

    return conditional(p, [[x], [x]], branch)
