"""Replace calls by the instructions of what they call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from spmd.analysis.call_sites import call_sites, require_bounded
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.inline import inline
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import move_control_edges


@register_pass
@dataclass(frozen=True)
class CallInliner(FueledPass):
    """Inline every ``call``, callees first. The instructions stand where the call stood, in the callee's order.

    A callee with one call site keeps its instructions' names. Raises UnsupportedError if the program would have more
    than MAX_UNSHARED instructions: the runtime keeps no calls. keep_uninlineable: leave calls alone that say
    ``inlineable="false"`` (JAX says so of shard_map bodies).
    """

    name: ClassVar[str] = "call-inliner"
    keep_uninlineable: bool = False

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        return inline_calls(module, Opcode.CALL, self._wanted, fuel)

    def _wanted(self, call: HloInstruction) -> bool:
        return not self.keep_uninlineable or call.annotations.frontend("inlineable") != "false"


def inline_calls(
    module: HloModule, opcode: Opcode, wanted: Callable[[HloInstruction], bool], fuel: Fuel
) -> bool:
    """Inline the calls (or fusions) that are ``wanted``, callees first. Returns whether there was one.

    Raises UnsupportedError if the program would become too large.
    """
    sites = call_sites(module)
    require_bounded(module, lambda x: x.opcode is opcode and wanted(x), "inlined")
    changed = False
    for computation in module.computations_post_order():
        calls = list(fuel.enough_for(filter(wanted, computation.with_opcode(opcode))))
        if calls:
            _inline_in(computation, calls, sites)
            changed = True
    if changed:
        module.remove_unreachable_computations()
    return changed


def _inline_in(
    computation: HloComputation, calls: list[HloInstruction], sites: Counter[HloComputation]
) -> None:
    """Replace ``calls`` by what they call, where they stand."""
    order = {x: [x] for x in computation.instructions}
    for call in calls:
        order[call] = _inline_call(call, keep_names=sites[call.to_apply] == 1)
    computation.set_order(x for group in order.values() for x in group)


def _inline_call(call: HloInstruction, *, keep_names: bool) -> list[HloInstruction]:
    """Replace ``call`` by copies of its callee's instructions; returns the copies in the callee's order."""
    assert call.parent is not None
    inlined = inline(call.to_apply, call.operands, call.parent, keep_names)
    for x in inlined.instructions:
        move_control_edges(call, x)
    if call.sharding is not None and inlined.root in inlined.instructions:
        inlined.root.sharding = call.sharding  # the sharding of an entry output
    call.parent.replace(call, inlined.root)
    return list(inlined.instructions)
