"""All-gathers whose operands are forms of one value, along any of their dimensions, beside one of others."""

from __future__ import annotations

import math

from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.devices import (
    equal_groups,
    ids_of,
    meeting,
    reducing_mode,
    several_devices,
)
from tests.spmd.passes.triggers.gathers import all_gather, part
from tests.spmd.passes.triggers.programs import FLOATS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("all-gather-cse")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    mode = reducing_mode(p)
    groups = equal_groups(p, ids_of(p, mode))
    x = part(p, p.element_type(FLOATS), low=p.choose((1, 3)))
    first = _placed(p, x) if p.chance() else x
    later = _placed(p, x) if p.chance() else _converted(p, x)
    gathers = [
        all_gather(p, [y], meeting(p, mode, groups, p.integer(0, len(y.dims) - 1)))
        for y in p.shuffled((first, later, *([_converted(p, later)] if p.chance(0.3) else [])))
    ]
    others = all_gather(p, [x], meeting(p, mode, equal_groups(p, ids_of(p, mode)), 0))
    return p.module(*[p.after(gather) for gather in (*gathers, others)])


def _placed(p: Program, x: HloInstruction) -> HloInstruction:
    """The same elements, in other places."""
    for _ in range(p.integer(1, 3)):
        form = p.choose(("transpose", "reshape", "flatten", "copy"))
        if form == "transpose":
            x = p.b.transpose(x, p.shuffled(range(len(x.dims))))
        elif form == "reshape":
            x = p.b.reshape(x, p.choose(_sizes(math.prod(x.dims))))
        elif form == "flatten":
            x = p.b.reshape(x, (1, math.prod(x.dims), 1))
        else:
            x = p.b.copy(x)
    return x


def _sizes(elements: int) -> list[tuple[int, int]]:
    return [(n, elements // n) for n in range(1, elements + 1) if elements % n == 0]


def _converted(p: Program, x: HloInstruction) -> HloInstruction:
    kind = p.choose([k for k in FLOATS if k is not x.array_shape.element_type])
    return p.b.convert(_placed(p, x) if p.chance() else x, kind)
