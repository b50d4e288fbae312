"""Work that could run during a collective: instructions of its computation that neither depend on it nor lead to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from spmd.hlo import HloComputation, HloInstruction

#: Rows of a table of bits that are unpacked at a time.
_BLOCK = 4096


def independent_seconds(
    computation: HloComputation,
    collectives: Sequence[HloInstruction],
    seconds: Callable[[HloInstruction], float],
) -> dict[HloInstruction, float]:
    """Return for each collective the seconds of all other instructions of ``computation`` that may overlap it."""
    order = computation.post_order()
    number = {collective: n for n, collective in enumerate(collectives)}
    bit = {x: 1 << number[x] if x in number else 0 for x in order}
    after: dict[HloInstruction, int] = {}
    for x in order:
        found = bit[x]
        for y in (*x.operands, *x.control_predecessors):
            found |= after[y]
        after[x] = found
    before: dict[HloInstruction, int] = {}
    for x in reversed(order):
        found = bit[x]
        for y in (*x.users, *x.control_successors):
            found |= before[y]
        before[x] = found
    work = [(x, one) for x in order if (one := seconds(x)) > 0.0]
    bound = [after[x] | before[x] for x, _ in work]
    free = _sums_without(bound, [one for _, one in work], len(number))
    return {x: free[n] for x, n in number.items()}


def _sums_without(sets: Sequence[int], weights: Sequence[float], count: int) -> list[float]:
    """For each of ``count`` bits: the weights of the sets that lack it, exactly zero where all have it."""
    size = -(-count // 8)
    total = np.zeros(count)
    for first in range(0, len(sets), _BLOCK):
        rows = b"".join(one.to_bytes(size, "little") for one in sets[first : first + _BLOCK])
        packed = np.frombuffer(rows, np.uint8).reshape(-1, size)
        bits = np.unpackbits(packed, axis=1, count=count, bitorder="little")
        total += np.array(weights[first : first + _BLOCK]) @ (1 - bits)
    return [float(one) for one in total]
