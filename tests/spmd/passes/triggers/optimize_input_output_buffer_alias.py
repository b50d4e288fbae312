"""Donated parameters, some in tuples, of which at least one has a result's shape."""

from __future__ import annotations

from spmd.hlo import HloInstruction, HloModule
from spmd.hlo.module import BufferDonor
from spmd.shape import TupleShape
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("optimize-input-output-buffer-alias")
def modules(rng: Rng) -> HloModule:
    p = Program(rng, partitions=2)
    values: list[HloInstruction] = []
    donors: list[BufferDonor] = []
    for _ in range(p.integer(1, 4)):
        shape = p.shape()
        number = len(p.result.entry.parameters)
        if p.chance(0.3):
            pair = p.parameter(TupleShape((p.shape(), shape)))
            values.append(p.b.get_tuple_element(pair, 1))
            donors.append(BufferDonor(number, (1,)))
        else:
            values.append(p.parameter(shape))
            donors.append(BufferDonor(number))
    kept = p.some(range(len(donors)), at_least=1)
    p.result.buffer_donors = tuple(donors[i] for i in kept)
    results = [p.after(values[i]) for i in kept]
    return p.module(*p.shuffled([*results, *p.some(values)]))
