"""Combination of updates into positions of flat arrays: the common part of scatter and select-and-scatter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.device import ReductionKind
from spmd.evaluator.numerics import narrow, widen
from spmd.evaluator.pointwise import UFUNCS, apply_scalar
from spmd.evaluator.value import NDArray
from spmd.hlo.computation import HloComputation
from spmd.ops.reduction import reduction_kind, through_annotations


def combine_at(
    combiner: HloComputation,
    targets: Sequence[NDArray],
    indices: NDArray,
    updates: Sequence[NDArray],
) -> None:
    """Set targets[..][index] = combiner(targets[index], update) for one update after the other. The targets are flat
    and written in place.
    """
    if indices.size == 0:
        return
    kind = reduction_kind(combiner) if len(targets) == 1 else None
    if kind is not None:
        _combine_known(kind, targets[0], indices, updates[0])
    elif _keeps_updates(combiner):
        for target, update in zip(targets, updates, strict=True):
            target[indices] = update  # the last update of an index wins
    else:
        _combine_in_rounds(combiner, targets, indices, updates)


def _combine_known(kind: ReductionKind, target: NDArray, indices: NDArray, update: NDArray) -> None:
    ufunc = UFUNCS[kind]
    wide = widen(target)
    if wide is target:
        ufunc.at(target, indices, update)
        return
    ufunc.at(wide, indices, widen(update))
    target[indices] = narrow(wide[indices], target.dtype)


def _keeps_updates(combiner: HloComputation) -> bool:
    """Return whether the combiner returns the updates (its last parameters): a plain assignment."""
    roots = through_annotations(combiner.root).elements
    updates = combiner.parameters[len(combiner.parameters) // 2 :]
    return [through_annotations(r) for r in roots] == list(updates)


def _combine_in_rounds(
    combiner: HloComputation,
    targets: Sequence[NDArray],
    indices: NDArray,
    updates: Sequence[NDArray],
) -> None:
    """Combine in rounds: round r uses the r-th update of every index, so the indices of a round are distinct."""
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]]
    starts = np.flatnonzero(first)
    turn = np.arange(ordered.size) - np.repeat(starts, np.diff(np.r_[starts, ordered.size]))
    for r in range(int(turn.max()) + 1):
        chosen = order[turn == r]
        at = indices[chosen]
        results = apply_scalar(combiner, [*(t[at] for t in targets), *(u[chosen] for u in updates)])
        for target, result in zip(targets, results, strict=True):
            target[at] = result
