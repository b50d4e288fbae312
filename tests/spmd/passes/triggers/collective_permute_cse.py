"""Permutes with the same pairs whose operands are forms or parts of one value, beside one with other pairs."""

from __future__ import annotations

import math

from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.devices import several_devices
from tests.spmd.passes.triggers.gathers import part
from tests.spmd.passes.triggers.permutes import exchanging_ids, permute, some_pairs
from tests.spmd.passes.triggers.programs import FLOATS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("collective-permute-cse")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    mode, count = exchanging_ids(p)
    pairs = some_pairs(p, count)
    x = part(p, p.element_type(FLOATS), low=p.choose((1, 3)))
    large, small = _two_slices(p, x) if p.chance(0.4) else (x, _formed(p, x))
    permutes = [permute(p, [y], p.shuffled(pairs), mode) for y in p.shuffled((large, small))]
    elsewhere = permute(p, [x], some_pairs(p, count), mode)
    return p.module(*[p.after(y) for y in (*permutes, elsewhere)])


def _formed(p: Program, x: HloInstruction) -> HloInstruction:
    for _ in range(p.integer(1, 3)):
        form = p.choose(("transpose", "reshape", "copy", "reverse", "slice", "convert"))
        if form == "transpose":
            x = p.b.transpose(x, p.shuffled(range(len(x.dims))))
        elif form == "reshape":
            x = p.b.reshape(x, (1, math.prod(x.dims)))
        elif form == "copy":
            x = p.b.copy(x)
        elif form == "reverse":
            x = p.b.reverse(x, p.some(range(len(x.dims)), at_least=1))
        elif form == "slice":
            x = _slice(p, x, [(0, n, 1) for n in x.dims])
        else:
            x = p.b.convert(x, p.choose(FLOATS))
    return x


def _two_slices(p: Program, x: HloInstruction) -> tuple[HloInstruction, HloInstruction]:
    """Return a slice, and a slice of what it holds."""
    outer = [_range(p, 0, n, 1) for n in x.dims]
    return _slice_at(p, x, outer), _slice(p, x, outer)


def _slice(p: Program, x: HloInstruction, outer: list[tuple[int, int, int]]) -> HloInstruction:
    """Return a slice within ``outer``, which has start, limit and stride by dimension."""
    return _slice_at(p, x, [_range(p, *bounds) for bounds in outer])


def _range(p: Program, start: int, limit: int, stride: int) -> tuple[int, int, int]:
    """Return some of the places start, start + stride, ..., all of a range or every other one."""
    places = range(start, limit, stride)
    first = p.integer(0, len(places) - 1)
    step = p.integer(1, 2)
    chosen = places[first : p.integer(first + 1, len(places)) : step]
    return chosen[0], chosen[-1] + 1, chosen.step


def _slice_at(p: Program, x: HloInstruction, bounds: list[tuple[int, int, int]]) -> HloInstruction:
    starts, limits, strides = zip(*bounds, strict=True)
    return p.b.slice(x, starts, limits, strides)
