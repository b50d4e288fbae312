"""Passes that look at one instruction after another and edit the program at some of them.

An ``InstructionPass`` edits anything; a ``Simplifier`` replaces an instruction by a simpler value, an ``OpExpander`` by
other operations that compute the same. Each edit is one rewrite, at which the pass can be stopped.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar, TypeAlias

from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.rewrite import (
    builder_at,
    copy_annotation,
    is_annotated,
    is_pinned,
    put_in_place,
    replace_and_prune,
)

#: Edits the program at an instruction that is still part of it. Returns whether anything changed.
Edit: TypeAlias = Callable[[HloInstruction], bool]

#: Returns a simpler value for an instruction, or None if none is known.
Simplify: TypeAlias = Callable[[HloInstruction], HloInstruction | None]


_MAX_REVISITS = 4
"""Most repeated visits per instruction, on average: rules that undo each other are stopped, and the pipeline warns."""


class InstructionPass(FueledPass):
    """One traversal of the instructions of ``opcodes``, callees first, in their order.

    Instructions that an edit makes are not visited in the same traversal.
    """

    opcodes: ClassVar[tuple[Opcode, ...]]

    @abstractmethod
    def editor(self, module: HloModule) -> Edit:
        """Return the edit of each instruction. It is called once per traversal."""

    def traversal(self, computation: HloComputation) -> Iterable[HloInstruction]:
        return computation.with_opcode(*self.opcodes)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        edit = self.editor(module)
        changed = False
        for computation in module.computations_post_order():
            for x in self.traversal(computation):
                if fuel.is_spent:
                    break
                if x.parent is not None and edit(x):
                    fuel.burn()
                    changed = True
        if changed:
            module.remove_unreachable_computations()
        return changed


class Simplifier(FueledPass):
    """A pass that replaces instructions by simpler values, operands first, and removes instructions without users.

    If a replacement leaves a value with one reader, that reader is visited again: rules may require a single reader.
    Pinned instructions (``is_pinned``) stay. Without ``opcodes`` every instruction is visited.

    makes_values: every simpler value is a new instruction, which gets the stated sharding.
    """

    opcodes: ClassVar[tuple[Opcode, ...]] = ()
    makes_values: ClassVar[bool] = False

    @abstractmethod
    def simplify(self, module: HloModule) -> Simplify:
        """Return the simplification of each instruction. It is called once per traversal."""

    def traversal(self, computation: HloComputation) -> Iterable[HloInstruction]:
        return filter(self._is_looked_at, computation.post_order())

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        simplify, effects = self.simplify(module), SideEffects()
        changed = False
        for computation in module.computations_post_order():
            work = deque(self.traversal(computation))
            again = _MAX_REVISITS * len(work)
            while work and not fuel.is_spent:
                x = work.popleft()
                stays = x.has_control_edges if self.makes_values else is_pinned(x)
                simpler = simplify(x) if x.parent is not None and not stays else None
                if simpler is None:
                    continue
                if is_annotated(x):
                    copy_annotation(x, simpler)
                less_read = replace_and_prune(x, simpler, effects)
                readers = filter(self._is_looked_at, _only_readers(less_read))
                for reader in itertools.islice(readers, again):
                    work.appendleft(reader)
                    again -= 1
                fuel.burn()
                changed = True
        if changed:
            module.remove_unreachable_computations()
        return changed

    def _is_looked_at(self, x: HloInstruction) -> bool:
        return not self.opcodes or x.opcode in self.opcodes


def _only_readers(values: Iterable[HloInstruction]) -> list[HloInstruction]:
    return [reader for value in values if value.num_users == 1 for reader in value.users]


class OpExpander(InstructionPass):
    """Writes every instruction of ``opcodes`` in other operations, which get its sharding and its control edges."""

    @abstractmethod
    def expand(self, x: HloInstruction, b: Builder) -> HloInstruction | None:
        """Return a new value equal to ``x``. Returns None, and builds nothing, if ``x`` has to stay."""

    def editor(self, module: HloModule) -> Edit:
        scope = ModuleScope(module)

        def edit(x: HloInstruction) -> bool:
            expanded = self.expand(x, builder_at(x, scope))
            if expanded is not None:
                put_in_place(x, expanded)
            return expanded is not None

        return edit
