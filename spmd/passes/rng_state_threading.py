"""Hand the state of random numbers from draw to draw as a value."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from spmd.builder import Builder, ModuleScope
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.literal import Literal
from spmd.ops.attrs import RngStateAttrs
from spmd.passes.interface import HloPass, register_pass
from spmd.passes.rewrite import move_control_edges, redirect
from spmd.shape import ArrayShape, PrimitiveType, TupleShape

_WORD = PrimitiveType.U64
_STATE = ArrayShape(_WORD, (2,))
_MASK = (1 << 64) - 1
_CONTROL_FLOW = (Opcode.WHILE, Opcode.CONDITIONAL)


@register_pass
@dataclass(frozen=True)
class RngStateThreading(HloPass):
    """a = rng-get-and-update-state(), delta=5  =>  a = the state so far (0 at first);  the state from here on is a + 5

    The order is that of the program. A loop that draws numbers carries the state in its own, and a conditional's
    branches have it as parameter and result. Draws then have no side effect, and a program draws the same numbers in
    every run and on every device. Loop conditions that draw, and calls, which are inlined before, are not changed.
    """

    name: ClassVar[str] = "rng-state-threading"

    def run(self, module: HloModule) -> bool:
        drawing = _Drawing()
        if not drawing.computation(module.entry) or not drawing.can_thread(module.entry):
            return False
        start = Builder(module.entry).constant(Literal.of(_STATE, np.zeros(2, np.uint64)))
        _Threading(ModuleScope(module), drawing).through(module.entry, start)
        return True


class _Drawing:
    """Computations that update the state, themselves or in their callees."""

    def __init__(self) -> None:
        self._known: dict[HloComputation, bool] = {}

    def computation(self, computation: HloComputation) -> bool:
        if computation not in self._known:
            self._known[computation] = any(map(self.instruction, computation.instructions))
        return self._known[computation]

    def instruction(self, x: HloInstruction) -> bool:
        return x.opcode is Opcode.RNG_GET_AND_UPDATE_STATE or any(
            map(self.computation, x.called_computations)
        )

    def can_thread(self, computation: HloComputation) -> bool:
        for x in computation.instructions:
            if not x.called_computations or not self.instruction(x):
                continue
            if x.opcode not in _CONTROL_FLOW:
                return False
            if x.opcode is Opcode.WHILE and self.computation(x.while_condition):
                return False
            if not all(map(self.can_thread, x.called_computations)):
                return False
        return True


class _Threading:
    def __init__(self, scope: ModuleScope, drawing: _Drawing) -> None:
        self._scope = scope
        self._drawing = drawing
        self._done: set[HloComputation] = set()

    def through(self, computation: HloComputation, state: HloInstruction) -> HloInstruction:
        """Pass the state through ``computation``. Returns the state after it."""
        b = Builder(computation, self._scope)
        for x in computation.post_order():
            if x.opcode is Opcode.RNG_GET_AND_UPDATE_STATE:
                after = _advanced(b, state, x.attrs_as(RngStateAttrs).delta)
                computation.replace(x, state)
                state = after
            elif x.opcode in _CONTROL_FLOW and self._drawing.instruction(x):
                state = self._through_callees(x, state, b)
        return state

    def _through_callees(
        self, x: HloInstruction, state: HloInstruction, b: Builder
    ) -> HloInstruction:
        """Repeat ``x`` with pairs of operand and state. Returns the state after it."""
        first = x.opcode is Opcode.CONDITIONAL
        paired = [b.tuple([operand, state]) for operand in x.operands[first:]]
        for callee in x.called_computations:
            returns_state = callee is not x.called_computations[0] or first
            if callee not in self._done:
                self._done.add(callee)
                self._pair(callee, returns_state)
        new = x.clone(TupleShape((x.shape, _STATE)), [*x.operands[:first], *paired])
        new.sharding = None
        b.computation.add(new)
        result = b.get_tuple_element(new, 0)
        result.sharding = x.sharding
        move_control_edges(x, new)
        b.computation.replace(x, result)
        return b.get_tuple_element(new, 1)

    def _pair(self, callee: HloComputation, returns_state: bool) -> None:
        """Turn parameter (and result) of a body, condition or branch into pairs of their value and the state."""
        (parameter,) = callee.parameters
        b, old_users, was_root = Builder(callee, self._scope), parameter.users, parameter.is_root
        old_shape = parameter.shape
        parameter.shape = TupleShape((old_shape, _STATE))
        own = b.get_tuple_element(parameter, 0)
        redirect(old_users, parameter, own)
        if was_root:
            callee.root = own
        if returns_state:
            state = self.through(callee, b.get_tuple_element(parameter, 1))
            callee.root = b.tuple([callee.root, state])


def _advanced(b: Builder, state: HloInstruction, delta: int) -> HloInstruction:
    """Return the state of 128 bits, low word first, plus ``delta``."""
    low, high = (b.slice(state, (i,), (i + 1,)) for i in range(2))
    added = b.full(ArrayShape(_WORD, (1,)), delta & _MASK)
    new_low = b.add(low, added)
    carry = b.convert(b.compare(new_low, added, "LT"), _WORD)
    over = b.full(ArrayShape(_WORD, (1,)), (delta >> 64) & _MASK)
    return b.concatenate([new_low, b.add(b.add(high, over), carry)], 0)
