"""Slices of all-gathers: the own part or part of it, as rows of the gather or reshaped."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.hlo import HloInstruction, HloModule
from spmd.ops.groups import device_groups
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.devices import several_devices, table_by_device
from tests.spmd.passes.triggers.gathers import random_gather
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_S32 = ArrayShape(PrimitiveType.S32, ())


@trigger("all-gather-dynamic-slice-simplifier")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    before, behind = p.dims(0, 1, empty=False), p.dims(0, 2, empty=False, most=12)
    rows = p.integer(1, 4)
    x = p.value(p.element_type(), (*before, rows, *behind))
    gathered = _gather(p, x, len(before))
    size = p.integer(1, rows) if p.chance(0.3) else rows
    starts = [place * rows + p.integer(0, rows - size) for place in _places(p, gathered)]
    source, at = gathered, len(before)
    if p.chance(0.3):
        source, at = p.b.reshape(gathered, (1, *gathered.dims[:at], 1, *gathered.dims[at:])), at + 2
    results = [p.after(_slice(p, source, at, size, starts))]
    if p.chance(0.3):
        results.append(gathered)
    return p.module(*results)


def _gather(p: Program, x: HloInstruction, dimension: int) -> HloInstruction:
    """Return a random all-gather over groups of at least two members."""
    while True:
        gathered = random_gather(p, [x], dimension)
        if gathered.dims != x.dims:
            return gathered


def _places(p: Program, gathered: HloInstruction) -> list[int]:
    groups = device_groups(gathered, p.result.num_partitions, p.result.replica_count)
    place = {device: i for group in groups for i, device in enumerate(group)}
    return [place[device] for device in range(len(place))]


def _slice(
    p: Program, x: HloInstruction, at: int, size: int, starts: Sequence[int]
) -> HloInstruction:
    """Return a slice of ``x`` at ``starts`` by device in dimension ``at``; the other dimensions are cut at random."""
    sizes = [n if p.chance(0.8) else p.integer(1, n) for n in x.dims]
    sizes[at] = size
    offsets = [p.parameter(_S32) if p.chance() else p.b.scalar(PrimitiveType.S32, 1) for _ in sizes]
    offsets[at] = table_by_device(p, starts)
    return p.b.dynamic_slice(x, offsets, sizes)
