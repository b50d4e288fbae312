"""Slices of padded arrays: a slice of what was padded, the padding value alone, or a smaller pad.

    q = f32[21] pad(f32[3] a, z), padding=0_0_9         an element of a, nine z, an element of a, ...
    slice(q), slice={[10:11]}          =>   slice(a), slice={[1:2]}
    slice(q), slice={[11:15]}          =>   broadcast(z)
    slice(q), slice={[5:15]}           =>   pad(slice(a), slice={[1:2]}), padding=5_4

A padded array of any size is never made where a few elements of it are read.
"""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import PadAttrs, SliceAttrs
from spmd.passes.algebraic.match import is_partitioned, used_once
from spmd.passes.algebraic.rules import simplifies
from spmd.passes.rewrite import is_pinned


@dataclass(frozen=True, slots=True)
class PaddedRange:
    """One dimension of a slice of a pad: source elements [start, limit) by stride, then padded.

    ``start == limit``: no element of the source is taken.
    """

    start: int
    limit: int
    stride: int
    low: int
    high: int
    interior: int

    @property
    def is_unpadded(self) -> bool:
        return not (self.low or self.high or self.interior)


def padded_range(
    size: int, low: int, interior: int, start: int, stride: int, count: int
) -> PaddedRange | None:
    """Return the part of a padded dimension that a slice takes, or None if no pad of a slice expresses it.

    Source element j of `size` lies at position low + j * (interior + 1); the slice takes the `count` positions
    start + i * stride (count >= 1).
    """
    nothing = PaddedRange(0, 0, 1, count, 0, 0)
    gap, step = interior + 1, stride if count > 1 else 1
    if size <= 1:
        gap = step  # a single element has no interior padding
    if gap % step and step % gap:
        return None
    if (low - start) % min(gap, step):
        return nothing
    # Every `hop`-th position of the slice has every `skip`-th element of the source.
    hop, skip = max(gap // step, 1), max(step // gap, 1)
    if hop > 1:
        # Source element j is at index i = position + j * hop of the slice.
        position = (low - start) // step
        first = max(0, -(position // hop))
        last = min(size - 1, (count - 1 - position) // hop)
    else:
        # Slice position i has source element (start - low) / gap + i * skip.
        position = -((start - low) // gap)
        first = max(0, -position) if position <= 0 else -position % skip
        last = min(size - 1, (count - 1) * skip - position)
    if first > last:
        return nothing
    taken = (last - first) // skip + 1
    lead = position + first * hop if hop > 1 else (position + first) // skip
    tail = count - 1 - lead - (taken - 1) * hop
    between = hop - 1 if taken > 1 else 0
    return PaddedRange(first, first + (taken - 1) * skip + 1, skip, lead, tail, between)


@simplifies(Opcode.SLICE)
def slice_of_padded(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """slice(pad(a, z)) => slice(a), broadcast(z) or pad(slice(a), z), each as large as the slice"""
    inner, cut = x.operand(0), x.attrs_as(SliceAttrs)
    if inner.opcode is not Opcode.PAD or not x.array_shape.num_elements or not is_partitioned(b):
        return None
    pad, source = inner.attrs_as(PadAttrs), inner.operand(0)
    ranges: list[PaddedRange] = []
    for d, size in enumerate(source.dims):
        found = padded_range(
            size, pad.low[d], pad.interior[d], cut.starts[d], cut.strides[d], x.dims[d]
        )
        if found is None:
            return None
        ranges.append(found)
    if any(one.start == one.limit for one in ranges):
        return b.broadcast_scalar(inner.operand(1), x.dims)
    padded = not all(one.is_unpadded for one in ranges)
    if padded and (not used_once(inner) or is_pinned(inner)):
        return None  # other users need the pad, and its slice needs no copy
    part = b.slice(
        source, [r.start for r in ranges], [r.limit for r in ranges], [r.stride for r in ranges]
    )
    if not padded:
        return part
    return b.pad(
        part,
        inner.operand(1),
        [r.low for r in ranges],
        [r.high for r in ranges],
        [r.interior for r in ranges],
    )
