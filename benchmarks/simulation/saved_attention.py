"""A training step whose backward loop reads the operands of fused attention that the forward loop saves.

The step has a loop over layers that saves each layer's input in a stacked array, and a loop in the opposite order that
computes each layer again from it. This rewrite stacks queries, keys and values as well, as they enter the attention
(the policy save_qkv_proj of MaxText), and removes their second computation. It relies on this: the second loop computes
the queries, keys and values of a layer from the slice that it reads, as the first loop did from what it wrote there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.errors import UnsupportedError
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.hlo.clone import clone_module
from spmd.library_calls.attention import LIBRARIES  # noqa: F401 - fills the table
from spmd.library_calls.attention.call import attention_call, is_attention_call
from spmd.ops.attrs import DynamicSliceAttrs
from spmd.passes.rewrite import redirect
from spmd.passes.while_state import Loop, add_elements, element_index, is_element_of, match_loop

#: Queries, keys and values: the first operands of every attention call.
_SAVED = 3


def with_saved_attention(module: HloModule) -> HloModule:
    """Return ``module`` with queries, keys and values saved by its forward loop.

    Raises UnsupportedError if it has no two loops, of which the second one reads a stack that the first one writes and
    contains the same forward attention call.
    """
    program = clone_module(module)
    pair = next(_pairs(program), None)
    if pair is None:
        raise UnsupportedError(f"{program.name} has no loop that computes attention a second time")
    _save(pair, ModuleScope(program))
    effects = SideEffects()
    for computation in program.computations:
        computation.remove_unused(keep=effects.of)
    return program


@dataclass(frozen=True)
class _Pair:
    """A loop that writes the element ``written`` of its state slice by slice, and one that reads these slices.

    update, read: the dynamic-update-slice of the first loop and the dynamic-slice of the second one; first, second: the
    attention calls.
    """

    forward: Loop
    backward: Loop
    update: HloInstruction
    read: HloInstruction
    first: HloInstruction
    second: HloInstruction


def _pairs(program: HloModule) -> Iterator[_Pair]:
    sites = Counter(callee for x in program.all_instructions() for callee in x.called_computations)
    whiles = list(program.entry.with_opcode(Opcode.WHILE))
    loops = [loop for x in whiles if (loop := match_loop(x, sites)) is not None]
    for backward in loops:
        for i, value in enumerate(backward.initial):
            forward = next((one for one in loops if is_element_of(value, one.instruction)), None)
            if forward is None or not backward.is_invariant(i):
                continue
            update = forward.next_value(element_index(value))
            read = _slice_of(backward.body, i)
            first, second = _attention(forward.body), _attention(backward.body)
            if update.opcode is Opcode.DYNAMIC_UPDATE_SLICE and read and first and second:
                yield _Pair(forward, backward, update, read, first, second)


def _slice_of(body: HloComputation, index: int) -> HloInstruction | None:
    """Return the first dynamic-slice of element ``index`` of the state of a loop."""
    for x in body.with_opcode(Opcode.DYNAMIC_SLICE):
        array = x.operand(0)
        if is_element_of(array, body.parameters[0]) and element_index(array) == index:
            return x
    return None


def _attention(body: HloComputation) -> HloInstruction | None:
    """Return the only forward attention call of ``body``; None if there are none or several."""
    calls = [
        x
        for x in body.with_opcode(Opcode.CUSTOM_CALL)
        if is_attention_call(x) and not attention_call(x).is_backward
    ]
    return calls[0] if len(calls) == 1 else None


def _save(pair: _Pair, scope: ModuleScope) -> None:
    saved = pair.first.operands[:_SAVED]
    again = pair.second.operands[:_SAVED]
    if [x.dims for x in saved] != [x.dims for x in again]:
        raise UnsupportedError(
            f"{pair.second.name}: its operands are not those of {pair.first.name}"
        )
    layers = pair.update.dims[0]
    entry = pair.forward.instruction.parent
    assert entry is not None
    b = Builder(entry, scope)
    shapes = [x.array_shape.without_layout() for x in saved]
    empty = [b.uninitialized(shape.with_dims((layers, *shape.dims))) for shape in shapes]
    loop, stacks = add_elements(pair.forward, empty, b)
    _write(loop, stacks, saved, pair.update, b)
    results = [
        b.get_tuple_element(loop.instruction, loop.size - len(stacks) + i)
        for i in range(len(stacks))
    ]
    _, stacks = add_elements(pair.backward, results, b)
    _read(pair, stacks, again, b)
    entry.set_order(entry.post_order())


def _write(
    loop: Loop,
    stacks: list[HloInstruction],
    saved: tuple[HloInstruction, ...],
    update: HloInstruction,
    b: Builder,
) -> None:
    """Let the body write ``saved`` where ``update`` writes the layer's input."""
    inside = b.within(loop.body)
    index, zero = update.operand(2), update.operand(3)
    root = loop.body.root
    first = loop.size - len(stacks)
    for i, (stack, value) in enumerate(zip(stacks, saved, strict=True)):
        slab = inside.reshape(value, (1, *value.dims))
        starts = [index, *[zero] * len(value.dims)]
        root.replace_operand(first + i, inside.dynamic_update_slice(stack, slab, starts))
    loop.body.set_order(loop.body.post_order())


def _read(
    pair: _Pair, stacks: list[HloInstruction], again: tuple[HloInstruction, ...], b: Builder
) -> None:
    """Let the body of the backward loop read slices of ``stacks`` instead of ``again``."""
    body = pair.second.parent
    assert body is not None
    inside = b.within(body)
    index, zero = pair.read.operand(1), pair.read.operand(2)
    for stack, value in zip(stacks, again, strict=True):
        sizes = (1, *value.dims)
        starts = [index, *[zero] * len(value.dims)]
        part = inside.create(Opcode.DYNAMIC_SLICE, (stack, *starts), DynamicSliceAttrs(sizes))
        redirect(value.users, value, inside.reshape(part, value.dims))
    body.set_order(body.post_order())
