"""Replace calls by the instructions of what they call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.passes.inline import inline
from spmd.passes.interface import UNSCHEDULED, HloPass, register_pass


@register_pass
@dataclass(frozen=True)
class CallInliner(HloPass):
    """Inline every ``call``, callees first. The instructions stand where the call stood, in the callee's order.

    A callee with one call site keeps its instructions' names. keep_uninlineable: leave calls alone that say
    ``inlineable="false"`` (JAX says so of shard_map bodies).
    """

    name: ClassVar[str] = "call-inliner"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED
    keep_uninlineable: bool = False

    def run(self, module: HloModule) -> bool:
        reachable = module.computations_post_order()
        sites = call_sites(reachable)
        changed = False
        for computation in reachable:
            calls = [x for x in computation.with_opcode(Opcode.CALL) if self._wanted(x)]
            if calls:
                inline_in(computation, calls, sites)
                changed = True
        if changed:
            module.remove_unreachable_computations()
        return changed

    def _wanted(self, call: HloInstruction) -> bool:
        return not self.keep_uninlineable or call.annotations.frontend("inlineable") != "false"


def call_sites(computations: Iterable[HloComputation]) -> Counter[int]:
    """By a computation's identity: how many instructions call it."""
    return Counter(
        id(callee) for c in computations for x in c.instructions for callee in x.called_computations
    )


def inline_in(
    computation: HloComputation, calls: list[HloInstruction], sites: Counter[int]
) -> None:
    """Replace ``calls`` (calls or fusions) by what they call, where they stand."""
    order = {x: [x] for x in computation.instructions}
    for call in calls:
        order[call] = inline_call(call, keep_names=sites[id(call.to_apply)] == 1)
    computation.set_order(x for group in order.values() for x in group)


def inline_call(call: HloInstruction, keep_names: bool = False) -> list[HloInstruction]:
    """Replace ``call`` by copies of its callee's instructions; returns the copies in the callee's order."""
    assert call.parent is not None
    inlined = inline(call.to_apply, call.operands, call.parent, keep_names)
    _move_control_edges(call, inlined.instructions)
    call.parent.replace(call, inlined.root)
    return list(inlined.instructions)


def _move_control_edges(call: HloInstruction, inlined: Sequence[HloInstruction]) -> None:
    for x in inlined:
        for before in call.control_predecessors:
            before.add_control_dependency_to(x)
        for after in call.control_successors:
            x.add_control_dependency_to(after)
