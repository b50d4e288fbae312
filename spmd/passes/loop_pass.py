"""Passes that edit one loop after another, if the elements of its state are known."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from spmd.analysis.call_sites import call_sites
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.rewrite import builder_at
from spmd.passes.while_state import Loop, match_loop


class LoopPass(InstructionPass):
    """One traversal of the loops that ``match_loop`` accepts, inner ones first."""

    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.WHILE,)

    @abstractmethod
    def edit_loop(self, loop: Loop, builder: Builder, effects: SideEffects) -> bool:
        """Edit ``loop``, and with ``builder`` the computation around it. Returns whether anything changed."""

    def editor(self, module: HloModule) -> Edit:
        scope, effects, sites = ModuleScope(module), SideEffects(), call_sites(module)

        def edit(x: HloInstruction) -> bool:
            loop = match_loop(x, sites)
            return loop is not None and self.edit_loop(loop, builder_at(x, scope), effects)

        return edit
