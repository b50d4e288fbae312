"""Permutes that are none, of constants, and in a row."""

from __future__ import annotations

from spmd.hlo import HloInstruction, HloModule
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.devices import several_devices
from tests.spmd.passes.triggers.gathers import part
from tests.spmd.passes.triggers.permutes import exchanging_ids, permute, some_pairs
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("collective-permute-simplifier")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    form = p.choose(_FORMS)
    return p.module(p.after(form(p)))


def _unsent(p: Program) -> HloInstruction:
    mode, _ = exchanging_ids(p)
    return permute(p, [part(p, p.element_type())], [], mode)


def _unmoved(p: Program) -> HloInstruction:
    mode, count = exchanging_ids(p)
    pairs = [(i, i) for i in p.some(range(count), at_least=1)]
    return permute(p, [part(p, p.element_type())], pairs, mode)


def _constant(p: Program) -> HloInstruction:
    mode, count = exchanging_ids(p)
    kind = p.element_type()
    x = p.constant(kind, (3,)) if p.chance() else p.b.iota(PrimitiveType.S32, (2, 3), 1)
    if p.chance():
        x = p.b.broadcast(x, range(len(x.dims)), (*x.dims, 2))
    return permute(p, [x], some_pairs(p, count), mode)


def _in_a_row(p: Program) -> HloInstruction:
    mode, count = exchanging_ids(p)
    x = part(p, p.element_type())
    for _ in range(p.integer(2, 4)):
        x = permute(p, [x], some_pairs(p, count), mode)
    return x


_FORMS = (
    _unsent,
    _unmoved,
    _constant,
    _in_a_row,
)
