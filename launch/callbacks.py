"""Calls of functions that no file holds, such as those of jax.debug.print, left out of a module on request."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.custom_call import custom_call
from spmd.hlo import HloComputation, HloInstruction, HloModule
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CustomCallAttrs
from spmd.shape import Shape, TokenShape, TupleShape, leaves


def leave_out_callbacks(module: HloModule) -> int:
    """Remove custom calls with side effects and without results whose target is not known; return their number.

    A result is an array: tokens, which order effects, become new ones. What the calls' operands alone needed is left to
    dead code elimination.
    """
    found = 0
    for computation in module.computations:
        for call in list(computation.with_opcode(Opcode.CUSTOM_CALL)):
            if is_removable(call):
                _remove(computation, call)
                found += 1
    return found


def is_removable(call: HloInstruction) -> bool:
    """Return whether a custom call has effects alone, and nothing here knows how to have them."""
    attrs = call.attrs_as(CustomCallAttrs)
    has_no_result = all(isinstance(shape, TokenShape) for _, shape in leaves(call.shape))
    return attrs.has_side_effect and has_no_result and custom_call(attrs.target).evaluate is None


def _remove(computation: HloComputation, call: HloInstruction) -> None:
    if not call.num_users and computation.root is not call:
        computation.remove(call)
        return
    order = list(computation.instructions)
    at = order.index(call)
    new = _without_effect(Builder(computation), call.shape)
    made = computation.instructions[len(order) :]
    if computation.root is call:
        computation.root = new
    computation.replace(call, new)
    computation.set_order([*order[:at], *made, *order[at + 1 :]])


def _without_effect(builder: Builder, shape: Shape) -> HloInstruction:
    if isinstance(shape, TupleShape):
        return builder.tuple([_without_effect(builder, element) for element in shape.elements])
    return builder.create(Opcode.AFTER_ALL)
