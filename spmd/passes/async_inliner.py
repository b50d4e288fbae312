"""Run computations that were started asynchronously where they are started."""

from __future__ import annotations

from typing import ClassVar

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CallAttrs, CollectiveAttrs, CollectivePermuteAttrs
from spmd.passes.call_inliner import inline_calls
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import move_control_edges


@register_pass
@dataclass(frozen=True)
class AsyncInliner(FueledPass):
    """Replace an async-start, its updates and its done by the instructions of the computation that it starts.

        s = ((f32[8]), f32[8], s32[]) async-start(x), calls=f       =>     d = f's instructions on x
        u = ((f32[8]), f32[8], s32[]) async-update(s)
        d = f32[8] async-done(u)

    The instructions replace the start at its position, so a schedule stays one. Updates of other starts are removed,
    too. Only collectives are asynchronous here: the start of a computation that is one collective stays, unless
    ``collectives``.
    """

    name: ClassVar[str] = "async-inliner"
    accepts: ClassVar[tuple[Stage, ...]] = tuple(Stage)
    collectives: bool = False

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        opened: set[HloInstruction] = set()
        changed = False
        for computation in module.computations_post_order():
            for x in computation.with_opcode(Opcode.ASYNC_UPDATE):
                if not fuel.is_spent:
                    fuel.burn()
                    _drop(x, x.operand(0))
                    changed = True
            for x in computation.with_opcode(Opcode.ASYNC_START):
                if not fuel.is_spent and (self.collectives or not _is_collective(x.to_apply)):
                    opened.add(_as_call(x, computation))
                    changed = True
        inline_calls(module, Opcode.CALL, lambda call: call in opened, fuel)
        return changed


def _is_collective(computation: HloComputation) -> bool:
    """Return whether a computation is one collective of its parameters."""
    root = computation.root
    return (
        isinstance(root.attrs, (CollectiveAttrs, CollectivePermuteAttrs))
        and root.operands == computation.parameters
        and len(computation) == computation.num_parameters + 1
    )


def _as_call(start: HloInstruction, computation: HloComputation) -> HloInstruction:
    """Replace a start and its done by a call that stands where the start stood; it has the done's name."""
    order = list(computation.instructions)
    dones = [user for user in start.users if user.opcode is Opcode.ASYNC_DONE]
    named = dones[0] if dones else start
    call = computation.create(
        Opcode.CALL,
        start.to_apply.root.shape,
        start.operands,
        CallAttrs(),
        name=named.name,
        called_computations=start.called_computations,
        sharding=named.sharding,
        annotations=start.annotations,
    )
    move_control_edges(start, call)
    for done in dones:
        _drop(done, call)
    computation.remove(start)
    gone = {start, *dones}
    computation.set_order(call if x is start else x for x in order if x is start or x not in gone)
    return call


def _drop(x: HloInstruction, value: HloInstruction) -> None:
    """Replace ``x``, which does nothing, by ``value``; what ran before and after it still runs in that order."""
    assert x.parent is not None
    for after in x.control_successors:
        value.add_control_dependency_to(after)
    for before in x.control_predecessors:
        for after in (*x.users, *x.control_successors):
            before.add_control_dependency_to(after)
    x.parent.replace(x, value)
