"""Loops that send the same in every trip, send at their ends what they compute, or send on what they were given."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.devices import several_devices
from tests.spmd.passes.triggers.loops import counted_loop, results
from tests.spmd.passes.triggers.permutes import exchanging_ids, permute, some_pairs
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("collective-permute-motion")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    mode, count = exchanging_ids(p)
    ways = [some_pairs(p, count) for _ in range(3)]
    kind, dims = p.element_type(), p.dims(1, 2, empty=False)
    alike, at_the_end, onward = p.choose(
        ((1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1))
    )
    computed_after, alone = p.chance(), p.chance(0.7)

    def send(b: Builder, x: HloInstruction, which: int) -> HloInstruction:
        return permute(p, [x], ways[which], mode, b)

    def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        x, w, k, total = elements
        total = b.add(b.add(total, k), x)
        if alike:
            total = b.subtract(total, send(b, b.negate(w), 0))
        if alone:
            total = b.add(total, _sum(b, w))
        following = b.subtract(_sum(b, b.add(x, w)), k)
        if at_the_end:
            following = send(b, following, 1)
            if computed_after:
                following = b.add(b.negate(following), w)
        return [following, w, send(b, k, 2) if onward else b.negate(k), total]

    loop = counted_loop(p, p.integer(2, 5), [p.value(kind, dims) for _ in range(4)], body)
    always = (0, 3) if alone and not onward else (3,)
    return p.module(*results(p, loop, *always, *p.some((1,))))


def _sum(b: Builder, x: HloInstruction) -> HloInstruction:
    """Return the sum of all elements at every element."""
    total = b.reduce(x, range(len(x.dims)), ReductionKind.SUM)
    return b.broadcast_scalar(total, x.dims)
