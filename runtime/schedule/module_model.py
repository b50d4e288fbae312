"""Memory models of a module's computations. A caller needs the memory of its callees while they run."""

from __future__ import annotations

from dataclasses import field

from runtime.schedule.memory_model import InputIndex, MemoryModel
from runtime.schedule.op_facts import OpFacts
from spmd.analysis.live_buffers import running_computations
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.hlo.opcode_roles import CALLERS
from spmd.lazy_dataclass import dataclass
from spmd.shape import ShapeIndex, leaves


@dataclass
class ModuleModel:
    """Memory models of the computations of a module.

    peaks[c]: bytes that computation c needs in its order, without its inputs. The scheduler and ``simulate`` set it.
    """

    module: HloModule
    facts: OpFacts = field(default_factory=OpFacts)
    peaks: dict[HloComputation, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        #: Scheduled computations, callees first. Those that reducers and fusions call are left out.
        self.computations = running_computations(self.module)
        callers = [x for c in self.computations for x in c.with_opcode(*CALLERS)]
        self._bodies = {i.while_body: None for i in callers if i.opcode is Opcode.WHILE}
        self._callers: dict[HloComputation, list[HloInstruction]] = {}
        for caller in callers:
            if caller.parent is not None:
                self._callers.setdefault(caller.parent, []).append(caller)
        self._models: dict[HloComputation, MemoryModel] = {}

    def of(self, computation: HloComputation) -> MemoryModel:
        """Return the model of ``computation``. Its callees must have peaks.

        There is one model for each computation, which edits of the computation must update.
        """
        if computation not in self._models:
            returns = self._returns(computation)
            self._models[computation] = MemoryModel(computation, {}, returns, self.facts)
        model = self._models[computation]
        for caller in self._callers.get(computation, ()):
            model.inner[caller] = max(self.peaks[c] for c in caller.called_computations)
        return model

    def simulate(self) -> None:
        """Compute the peaks of all computations in their present order."""
        for computation in self.computations:
            self.peaks[computation] = self.of(computation).peak(computation.instructions)

    def totals(self) -> dict[HloComputation, int]:
        """Return, for each computation, its peak plus the bytes that are live in its callers while it runs.

        All computations must have peaks.
        """
        totals = {self.module.entry: self.peaks[self.module.entry]}
        for computation in reversed(self.computations):
            order, model = computation.instructions, self.of(computation)
            above = totals[computation] - self.peaks[computation]
            for caller, need in zip(order, model.needs(order), strict=True):
                live = above + need - model.inner.get(caller, 0)
                for callee in caller.called_computations if caller.opcode in CALLERS else ():
                    totals[callee] = max(totals.get(callee, 0), live + self.peaks[callee])
        return totals

    def _returns(self, computation: HloComputation) -> dict[ShapeIndex, InputIndex]:
        """Return the results that should be written in an input's buffer, with the input.

        They are the aliased outputs of the entry, and the results of a loop body.
        """
        if computation is self.module.entry:
            return {
                alias.output_index: (alias.parameter, alias.parameter_index)
                for alias in self.module.input_output_alias
            }
        if computation not in self._bodies:
            return {}
        return {index: (0, index) for index, _ in leaves(computation.root.shape)}
