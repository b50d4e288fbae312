"""Division of a kernel into pieces: kernels that compute parts of its results, by one function per kind of kernel.

A piece computes each element by the same operations in the same order as the uncut kernel does, so results do not
depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from runtime.cpu.kernels.native_call import NativeAction, SharedAction
from runtime.cpu.sharing import (  # noqa: F401 - they register how to cut
    convolutions,
    indexed,
    loops,
    products,
    sorts,
)
from runtime.cpu.sharing.pieces import CUTS, CUTS_IN_TURN, Cut, Piece
from runtime.cpu.step.prepare import Cutting
from runtime.program.kernel import Action, Kernel, KernelArrays, KernelLibrary
from spmd.literal import NDArray


def bind_shared(
    library: KernelLibrary, kernel: Kernel, arrays: KernelArrays, cutting: Cutting
) -> Action:
    """Bind ``kernel`` to ``arrays``, in pieces if ``cutting`` allows several.

    Returns a SharedAction of the pieces, or the action of the uncut kernel if it cannot be cut or a piece is not native
    code.
    """
    pieces = cut_into(kernel, arrays, cutting.shared)
    if cutting.in_turn > len(pieces):
        pieces = max(pieces, cut_in_turn(kernel, arrays, cutting.in_turn), key=len)
    if cutting.threads == 1:
        pieces = [(own, _with_shared_scratch(parts, arrays)) for own, parts in pieces]
    if pieces:
        actions = [library.bind(*piece) for piece in pieces]
        native = [action for action in actions if isinstance(action, NativeAction)]
        if len(native) == len(actions):  # pieces in Python would hold the interpreter's lock
            return SharedAction(native)
    return library.bind(kernel, arrays)


def cut_into(kernel: Kernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Return at most ``count`` pieces of ``kernel`` for concurrent threads; no pieces if the kernel cannot be cut."""
    return _cut_by(CUTS.get(type(kernel)), kernel, arrays, count)


def cut_in_turn(kernel: Kernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Return about ``count`` pieces of ``kernel`` for one thread to compute in turn; no pieces if it cannot be cut."""
    cut = CUTS_IN_TURN.get(type(kernel)) or CUTS.get(type(kernel))
    return _cut_by(cut, kernel, arrays, count)


def _cut_by(cut: Cut | None, kernel: Kernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    if cut is None or count == 1 or not any(array.size for array in arrays.results):
        return ()
    pieces = cut(kernel, arrays, count)
    return pieces if len(pieces) > 1 else ()


def _with_shared_scratch(piece: KernelArrays, full: KernelArrays) -> KernelArrays:
    """Return ``piece`` with the uncut kernel's scratch instead of its own, except where that is too small.

    The pieces must run in turn, since they then share this scratch.
    """
    if not piece.scratch:
        return piece
    scratch = tuple(
        mine if mine.nbytes > theirs.nbytes else _array_at_start(theirs, mine)
        for mine, theirs in zip(piece.scratch, full.scratch, strict=True)
    )
    return replace(piece, scratch=scratch)


def _array_at_start(memory: NDArray, like: NDArray) -> NDArray:
    """Return a view of the start of ``memory`` with the shape and type of ``like``."""
    return np.ndarray(like.shape, like.dtype, memory.reshape(-1).view(np.uint8).data)
