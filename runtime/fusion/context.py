"""Inputs of fusion planning: a module, an instruction order of each of its computations, and the memory need in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from runtime.buffers.linearize import linearize
from runtime.buffers.program import Program
from runtime.fusion.make_fusions import FusionPlan, make_fusions
from runtime.schedule.exact_memory import least_bytes, needs_no_more, program_bytes
from runtime.schedule.memory_scheduler import stand_in_order
from runtime.schedule.module_model import ModuleModel
from runtime.schedule.op_facts import OpFacts
from spmd.errors import UnsupportedError
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode, Stage
from spmd.hlo.clone import clone_module
from spmd.lazy_dataclass import dataclass
from spmd.passes.fuel import Fuel

#: Memory that a plan may use in addition, as a fraction of the module's memory. Plans usually save a larger fraction of
#: the time.
SLACK = 1 / 64
#: Bytes that a plan may always use in addition: the alignment padding of eight arrays. For a program of a few kilobytes
#: the fraction above is less than that, and rejecting a plan costs as much compile time as carrying one out.
SLACK_BYTES = 512

#: Opcodes that no kernel computes.
_SOURCES = frozenset({Opcode.PARAMETER, Opcode.CONSTANT, Opcode.IOTA})


@dataclass(frozen=True)
class FusionContext:
    """A module for which fusions are planned.

    ``order_of`` gives each computation's schedule, or its stored order made topological if the module has no schedule.
    ``program`` is the linearized program in this order, and ``needs_of`` gives the live bytes at each of its positions
    as ``models`` estimates them.
    """

    module: HloModule
    models: ModuleModel
    order_of: Mapping[HloComputation, Sequence[HloInstruction]]
    needs_of: Mapping[HloComputation, Sequence[int]]
    program: Program

    @staticmethod
    def of(module: HloModule) -> FusionContext | None:
        """Return the context of ``module``, or None if the runtime does not support one of its operations."""
        ordered = _in_order(module)
        try:
            program = linearize(ordered)
        except UnsupportedError:
            return None
        facts = OpFacts.of(program)
        facts.written |= dict.fromkeys(_broadcast_results(ordered))
        models = ModuleModel(module, facts if ordered is module else facts.on(module))
        theirs = {computation.name: computation for computation in ordered.computations}
        order_of = {ours: _as_in(theirs[ours.name], ours) for ours in models.computations}
        needs_of = {}
        for ours in models.computations:
            needs_of[ours] = models.of(ours).needs(order_of[ours])
            models.peaks[ours] = max(needs_of[ours], default=0)
        return FusionContext(module, models, order_of, needs_of, program)

    def carried_out(self, plans: Iterable[FusionPlan], granted: int) -> HloModule | None:
        """Return a copy of the module with the kernels of ``plans`` as fusions.

        Returns None if the copy needs more than ``granted`` bytes and exceeds the module's memory by more than the
        slack (``SLACK``, ``SLACK_BYTES``).
        """
        copy = clone_module(self.module)
        named = {x.name: x for x in copy.all_instructions()}
        computations = {c.name: c for c in copy.computations}
        for plan in plans:
            make_fusions(plan.on(computations[plan.computation.name], named), Fuel())
        copy.computations = copy.computations_post_order()
        return copy if self._holds(linearize(_in_order(copy)), granted) else None

    def _holds(self, fused: Program, granted: int) -> bool:
        """Return whether ``fused`` needs at most ``granted`` bytes, or at most the module's memory and the slack.

        The module's lower bound is compared before its exact memory, because most plans already stay below the bound.
        """
        if granted and needs_no_more(fused, granted):
            return True
        bounds = (bound(self.program) for bound in (least_bytes, program_bytes))
        return any(
            needs_no_more(fused, max(int(bound * (1 + SLACK)), bound + SLACK_BYTES))
            for bound in bounds
        )


def _broadcast_results(module: HloModule) -> list[HloInstruction]:
    """Return the broadcasts of computed values that are results of the program and that no other instruction reads.

    They are not views but arrays that must be written, preferably by the kernel that computes the value.
    """
    root = module.entry.root
    return [
        x
        for x in root.elements
        if x.opcode is Opcode.BROADCAST
        and x.num_users == (x is not root)
        and x.operand(0).opcode not in _SOURCES
    ]


def _in_order(module: HloModule) -> HloModule:
    """Return ``module`` if it is scheduled, else a scheduled copy."""
    if module.stage >= Stage.SCHEDULED:
        return module
    copy = clone_module(module)
    stand_in_order(copy)
    return copy


def _as_in(copy: HloComputation, original: HloComputation) -> list[HloInstruction]:
    """Return the instructions of ``original`` in the order of ``copy``, which has instructions of the same names."""
    if copy is original:
        return list(original.instructions)
    named = {x.name: x for x in original.instructions}
    return [named[x.name] for x in copy.instructions]
