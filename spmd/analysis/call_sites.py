"""Numbers of callers of computations, and the size of a program in which each call has its own callee."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from spmd.errors import UnsupportedError
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.limits import MAX_UNSHARED


def call_sites(module: HloModule) -> Counter[HloComputation]:
    """Count the calls of each computation that the entry reaches; an instruction that names a computation twice counts
    twice.
    """
    return Counter(
        callee
        for computation in module.computations_post_order()
        for x in computation.instructions
        for callee in x.called_computations
    )


def require_bounded(
    module: HloModule, unshares: Callable[[HloInstruction], bool], doing: str
) -> None:
    """Raise UnsupportedError if the program would have more than MAX_UNSHARED instructions, and more than it has.

    The callees of each instruction for which `unshares` is true are copied for it alone; others stay shared. Time is
    linear in the module's size, however large the result would be. `doing`: the rewrite of the callees as a participle,
    for the message.
    """
    sizes: dict[HloComputation, int] = {}
    shared = {module.entry}
    before = 0
    for computation in module.computations_post_order():
        before += len(computation)
        size = len(computation)
        for x in computation.instructions:
            if not x.called_computations:
                continue
            if unshares(x):
                size += sum(sizes[callee] for callee in x.called_computations)
            else:
                shared.update(x.called_computations)
        sizes[computation] = size
    after = sum(sizes[computation] for computation in shared)
    if after > max(MAX_UNSHARED, before):
        raise UnsupportedError(
            f"{module.name} has {before:,} instructions, and {after:,} once what each call, loop or branch calls is "
            f"{doing}: more than {MAX_UNSHARED:,}"
        )
