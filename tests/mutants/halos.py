"""Planted bugs in halo exchange."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from partitioner.ops import halo, halo_windows
from tests.mutants.patching import function, mutant


@mutant("what should come from a neighbour is zero", "reduce_window")
def halo_missing() -> AbstractContextManager[None]:
    def shifted(context: Any, piece: Any, axes: Any, distance: int) -> Any:
        b = context.builder
        return b.broadcast_scalar(b.scalar_like(piece, 0), piece.dims)

    return function(halo._shifted, shifted)


@mutant("the halo comes from the neighbour on the other side", "reduce_window")
def halo_from_the_other_side() -> AbstractContextManager[None]:
    original = halo.shift_pairs
    return function(original, lambda axes, along, distance: original(axes, along, -distance))


@mutant("windows begin one element late", "convolution")
def halo_one_late() -> AbstractContextManager[None]:
    original = halo.exchange

    def exchange(context: Any, value: Any, dim: int, window: Any, fill: Any) -> Any:
        return original(context, value, dim, replace(window, start=window.start + 1), fill)

    return function(original, exchange)


@mutant("windows of uneven tiles move on by the tile instead of the step", "slice_")
def halo_without_drift() -> AbstractContextManager[None]:
    original = halo._cut

    def cut(context: Any, joined: Any, dim: int, axes: Any, window: Any, reach: Any) -> Any:
        return original(context, joined, dim, axes, replace(window, step=reach.tile), reach)

    return function(original, cut)


@mutant("what lies outside the dimension is what nobody sends: zeros", "reduce_window", first=11)
def halo_not_filled() -> AbstractContextManager[None]:
    original = halo._received

    def received(context: Any, piece: Any, axes: Any, distance: int, fill: Any) -> Any:
        return original(context, piece, axes, distance, None)

    return function(original, received)


@mutant("what lies outside the dimension is what the last tile's padding holds", "reduce_window")
def halo_padding_not_filled() -> AbstractContextManager[None]:
    return function(halo._filled, lambda context, value, found, dim, window, fill: found)


@mutant("the halo before a tile stands after it", "convolution")
def halo_joined_backwards() -> AbstractContextManager[None]:
    original = halo._with_neighbours

    def joined(context: Any, local: Any, dim: int, axes: Any, reach: Any, fill: Any) -> Any:
        turned = replace(reach, left=reach.right, right=reach.left)
        return original(context, local, dim, axes, turned, fill)

    return function(original, joined)


@mutant("a strided window's step is that of an unstrided one", "reduce_window")
def halo_stride_ignored() -> AbstractContextManager[None]:
    original = halo_windows.sliding

    def sliding(window: Any, tile: int) -> Any:
        found = original(window, tile)
        if found is None:
            return None
        return replace(found[0], step=max(1, found[0].step // window.stride)), found[1]

    return function(original, sliding)
