"""Cutting of kernels into pieces for concurrent threads: by kind of kernel, as kernels on parts of its arrays.

Every element is computed by the same operations in the same order as by the whole kernel, so results do not depend on
how many threads there are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from collectives.communicator.interface import private_memory
from runtime.cpu.kernels.native_call import NativeAction, SharedAction
from runtime.program.bands import Span
from runtime.program.kernel import Action, Kernel, KernelArrays, KernelLibrary
from spmd.literal import NDArray
from spmd.registry import Registry

#: A piece that takes less is not worth another thread's while: to fetch it from another core takes a microsecond, what
#: it reads and writes may lie in the other core's cache, and the last piece is waited for.
LEAST_SECONDS = 15e-6
#: Pieces for each thread: whoever is faster does more of them.
PIECES_PER_THREAD = 2

Piece: TypeAlias = tuple[Kernel, KernelArrays]
Cut: TypeAlias = Callable[[Any, KernelArrays, int], Sequence[Piece]]

#: By kind of kernel: what cuts it into so many pieces or fewer; into none where it cannot.
CUTS: Registry[type, Cut] = Registry("cuts of kernels")
#: Other ones where these are better for a single thread, for which a piece must hardly add to the work; it may be cut
#: into a few more.
CUTS_IN_TURN: Registry[type, Cut] = Registry("cuts of kernels for one thread")


@dataclass(frozen=True, slots=True)
class Cutting:
    """Into how many pieces a kernel is cut, or fewer.

    shared: for the ``threads`` that do them at once. in_turn: so that something else can be done between.
    """

    threads: int = 1
    shared: int = 1
    in_turn: int = 1


def bind_shared(
    library: KernelLibrary, kernel: Kernel, arrays: KernelArrays, cutting: Cutting
) -> Action:
    """``kernel`` bound to ``arrays``, in pieces if it can be cut."""
    pieces = cut_into(kernel, arrays, cutting.shared)
    if cutting.in_turn > len(pieces):
        pieces = max(pieces, cut_in_turn(kernel, arrays, cutting.in_turn), key=len)
    if cutting.threads == 1:
        pieces = [(own, _in_place(parts, arrays)) for own, parts in pieces]
    if pieces:
        actions = [library.bind(*piece) for piece in pieces]
        native = [action for action in actions if isinstance(action, NativeAction)]
        if len(native) == len(actions):  # others keep the interpreter to themselves
            return SharedAction(native)
    return library.bind(kernel, arrays)


def cut_into(kernel: Kernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """``count`` pieces or fewer; none where it stays whole."""
    return _cut_by(CUTS.get(type(kernel)), kernel, arrays, count)


def cut_in_turn(kernel: Kernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """The same for one thread, but it may be a few more."""
    cut = CUTS_IN_TURN.get(type(kernel)) or CUTS.get(type(kernel))
    return _cut_by(cut, kernel, arrays, count)


def _cut_by(cut: Cut | None, kernel: Kernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    if cut is None or count == 1 or not any(array.size for array in arrays.results):
        return ()
    pieces = cut(kernel, arrays, count)
    return pieces if len(pieces) > 1 else ()


def pieces_worth(seconds: float, threads: int) -> int:
    """Into how many pieces what takes one thread so long is cut for ``threads``."""
    return max(1, min(PIECES_PER_THREAD * threads, int(seconds / LEAST_SECONDS)))


def _in_place(piece: KernelArrays, whole: KernelArrays) -> KernelArrays:
    """``piece``, which has the whole kernel's scratch while it runs, instead of its own."""
    if not piece.scratch:
        return piece
    scratch = tuple(
        mine if mine.nbytes > theirs.nbytes else _lying_in(theirs, mine)
        for mine, theirs in zip(piece.scratch, whole.scratch, strict=True)
    )
    return replace(piece, scratch=scratch)


def _lying_in(place: NDArray, like: NDArray) -> NDArray:
    """An array as ``like`` at the beginning of ``place``."""
    return np.ndarray(like.shape, like.dtype, place.reshape(-1).view(np.uint8).data)


def spans(size: int, count: int, multiple: int = 1) -> list[Span]:
    """``size`` indices as ``count`` spans or fewer, of about the same size; all but the last one multiples."""
    blocks = -(-size // multiple)
    count = max(1, min(count, blocks))
    ends = [min(size, multiple * (blocks * i // count)) for i in range(count + 1)]
    return [Span(start, stop) for start, stop in itertools.pairwise(ends) if stop > start]


def bytes_apart(strides: Sequence[Sequence[int]]) -> list[int]:
    """Return the distance of neighbours along each dimension, summed over the arrays with these strides."""
    return [sum(map(abs, own)) for own in zip(*strides, strict=True)]


def longest(dims: Sequence[int], apart: Sequence[int], count: int) -> int | None:
    """The dimension to cut ``count`` times: the one with neighbours farthest apart that has so many indices.

    Where none has, the one with most. Not one that nothing is written along: all pieces would write the same.
    """
    several = [d for d, size in enumerate(dims) if size > 1 and apart[d]]
    enough = [d for d in several if dims[d] >= count]
    if enough:
        return max(enough, key=lambda d: apart[d])
    return max(several, key=lambda d: (dims[d], apart[d]), default=None)


def scratch_like(arrays: Sequence[NDArray]) -> tuple[NDArray, ...]:
    """Scratch of a piece's own, as a device's memory is aligned."""
    return tuple(scratch(array.shape, array.dtype) for array in arrays)


def scratch(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    data = private_memory(math.prod(shape) * dtype.itemsize)
    return data.view(dtype).reshape(shape)
