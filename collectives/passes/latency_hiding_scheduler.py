"""Order a schedule so that its collectives overlap other work, on a described machine."""

from __future__ import annotations

from dataclasses import field, replace
from typing import ClassVar

from collectives.cost.custom_calls import CallCost
from collectives.cost.profiled import with_measured
from collectives.cost.roofline import RooflineEstimator
from collectives.schedule.latency_hiding import LatencyOptions, schedule_for_latency
from collectives.schedule.overlap_limits import OverlapLimits
from spmd.hlo.module import HloModule, Stage
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.machine.named import machine_named
from spmd.passes.interface import MACHINE_OPTION, HloPass, PassResult, register_pass


@register_pass
@dataclass(frozen=True)
class LatencyHidingScheduler(HloPass):
    """Move starts ahead and dones behind other work, by seconds on ``machine`` (default: dgx-h100).

        s = all-gather-start(w)               s = all-gather-start(w)
        g = all-gather-done(s)          =>    a = dot(x, y)
        a = dot(x, y)                         g = all-gather-done(s)
        b = dot(a, g)                         b = dot(a, g)

    memory-limit: bytes of a device that the order may need (0: any number); if the present order is within it, so is
    the new one. per-exchange: collectives in flight on one exchange (0: the default of the machine's kind); in-flight:
    those on all exchanges (0: any number). The present order stays if no faster one is found. costs: of custom calls,
    by target. durations: measured seconds of instructions, by name. See docs/internals/scheduling.md.
    """

    name: ClassVar[str] = "latency-hiding-scheduler"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.SCHEDULED,)
    machine: MachineDescription | None = field(default=None, metadata=MACHINE_OPTION)
    memory_limit: int = 0
    per_exchange: int = 0
    in_flight: int = 0
    costs: tuple[tuple[str, CallCost], ...] = ()
    durations: tuple[tuple[str, float], ...] = field(default=(), repr=False)

    def run(self, module: HloModule) -> bool:
        return self.run_with_notes(module).changed

    def run_with_notes(self, module: HloModule) -> PassResult:
        """Run the scheduler; its note is a LatencyReport."""
        machine = self.machine or machine_named("dgx-h100")
        described = RooflineEstimator.of(module, machine, dict(self.costs), unknown_by_bytes=True)
        estimator = with_measured(described, self.durations)
        options = LatencyOptions(self._limits(machine), self.memory_limit or None, machine.busy)
        report = schedule_for_latency(module, estimator, options)
        return PassResult(report.changed, (report,))

    def _limits(self, machine: MachineDescription) -> OverlapLimits:
        usual = OverlapLimits.on(machine)
        most = self.per_exchange or usual.per_exchange
        return replace(usual, per_exchange=most, in_flight=self.in_flight)
