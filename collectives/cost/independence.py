"""Work that could overlap a collective: the instructions that neither depend on it nor precede it in dataflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from spmd.hlo import HloComputation, HloInstruction

#: Number of bit masks that are unpacked at a time, which limits the memory.
_BLOCK = 4096


def independent_seconds(
    computation: HloComputation,
    collectives: Sequence[HloInstruction],
    seconds: Callable[[HloInstruction], float],
) -> dict[HloInstruction, float]:
    """Return, for each collective, the total seconds of the other instructions of ``computation`` that may overlap it.

    An instruction may overlap a collective if no path of operands and control dependencies connects the two.
    ``seconds`` returns the time of an instruction.
    """
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
    """Return, for each of ``count`` bits, the sum of the weights of the ``sets`` that do not contain the bit.

    Sets are bit masks. A sum is exactly 0 if all sets contain the bit.
    """
    size = -(-count // 8)
    total = np.zeros(count)
    for first in range(0, len(sets), _BLOCK):
        rows = b"".join(one.to_bytes(size, "little") for one in sets[first : first + _BLOCK])
        packed = np.frombuffer(rows, np.uint8).reshape(-1, size)
        bits = np.unpackbits(packed, axis=1, count=count, bitorder="little")
        total += np.array(weights[first : first + _BLOCK]) @ (1 - bits)
    return [float(one) for one in total]
