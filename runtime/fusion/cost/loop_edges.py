"""Edges of a loop: indices at which it begins to read another operand of a concatenation, or the padding of an array.

A loop is cut at its edges into pieces, each of which is a loop with code of its own.

    p = f32[12] pad(x, zero), padding=1_1, x = f32[10]      loop over i of p:   edges 1 and 11, three pieces
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence

from runtime.fusion.index_maps import Index, IndexMap
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs, PadAttrs

#: Values at which a loop is cut, by the loop variable or other index expression that takes them.
Edges = dict[Hashable, set[int]]


def add_edges(edges: Edges, x: HloInstruction, at: IndexMap) -> None:
    """Add to ``edges`` those of the concatenation or pad ``x``, whose elements are read at the index map ``at``."""
    for index, position in _edges(x, at):
        base, offset = _moved(index.key)
        edges.setdefault(base, set()).add(position - offset)


def piece_count(edges: Edges, sizes: Sequence[int]) -> int:
    """Return an upper bound on the number of pieces into which ``edges`` cut a loop over ``sizes``."""
    size_of: Mapping[Hashable, int] = {("variable", n): size for n, size in enumerate(sizes)}
    return math.prod(
        1 + sum(0 < position < size_of.get(base, position + 1) for position in positions)
        for base, positions in edges.items()
    )


def _edges(x: HloInstruction, at: IndexMap) -> Iterator[tuple[Index, int]]:
    """Yield the edges of ``x``, read at the map ``at``, as index expressions and the values at which a piece begins."""
    if x.opcode is Opcode.CONCATENATE:
        (along,) = x.attrs_as(DimensionsAttrs).dimensions
        end = 0
        for operand in x.operands[:-1]:
            end += operand.dims[along]
            yield at[along], end
    elif x.opcode is Opcode.PAD:
        attrs = x.attrs_as(PadAttrs)
        for index, low, high, size in zip(at, attrs.low, attrs.high, x.dims, strict=True):
            if low > 0:
                yield index, low
            if high > 0:
                yield index, size - high


def _moved(key: tuple[object, ...]) -> tuple[tuple[object, ...], int]:
    """Return the expression from which the expression ``key`` differs by a constant, and that constant."""
    offset = 0
    while True:
        match key:
            case ("affine", tuple() as inner, int() as start, 1):
                key, offset = inner, offset + start
            case ("pad", tuple() as inner, int() as low, 0):
                key, offset = inner, offset - low
            case _:
                return key, offset
