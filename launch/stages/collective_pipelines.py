"""The pipelines of passes on collectives, in groups that a compilation can do without.

A machine whose devices compute while bytes move (``MachineDescription.overlaps``) gets all of them: collectives are
moved away from their users, and the schedule overlaps them with other work. If processors move the bytes themselves, as
those of one node do, only the passes that reduce communication or waiting run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from collectives.passes.all_passes import COLLECTIVE_COMBINING, COLLECTIVE_SIMPLIFICATION
from collectives.passes.async_creation import AsyncCreation
from collectives.passes.async_to_sync import AsyncToSync, BlockingAgain
from collectives.passes.collective_pipeliner import CollectivePipeliner
from collectives.passes.combining import CollectiveCombiner
from collectives.passes.exchange_pipeliner import ExchangePipeliner
from collectives.passes.latency_hiding_scheduler import LatencyHidingScheduler
from collectives.passes.windowed_einsum import WindowedEinsum
from collectives.schedule.latency_report import LatencyReport
from launch.collective_groups import CollectiveGroup
from launch.options import CompileOptions
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.passes.all_passes import SIMPLIFICATION
from spmd.passes.pipeline import Pipeline
from spmd.passes.update_forwarding import UpdateForwarding
from spmd.passes.while_loop_unroller import WhileLoopUnroller

#: A collective of at least this many latencies hardly becomes faster by being combined with another one.
LATENCIES = 16

#: Short loops are unrolled completely, so that collectives of one trip may overlap the work of another trip.
UNROLLED = WhileLoopUnroller(factor=0, max_instructions=4096)
#: After unrolling, trip numbers are constants, several trips may gather the same value, and a value that one loop
#: stored for another is available.
AFTER_UNROLLING = (*SIMPLIFICATION, UpdateForwarding())


def on_optimized(options: CompileOptions) -> tuple[Pipeline, ...]:
    """Return the pipelines that run before layouts and kernels are chosen."""
    found = [Pipeline(CollectiveGroup.SIMPLIFICATION, COLLECTIVE_SIMPLIFICATION)]
    if options.machine.overlaps:
        machine = options.machine
        windows = (
            ExchangePipeliner(machine=machine, windows=True),
            WindowedEinsum(machine=machine),
        )
        found.append(Pipeline(CollectiveGroup.LOOP_UNROLLING, (UNROLLED,)))
        found.append(
            Pipeline(
                CollectiveGroup.LOOP_UNROLLING, AFTER_UNROLLING, repeated=True, after_change=True
            )
        )
        found.append(Pipeline(CollectiveGroup.PIPELINING, (CollectivePipeliner(),)))
        found.append(Pipeline(CollectiveGroup.WINDOWED_EINSUM, windows))
    found.append(Pipeline(CollectiveGroup.COMBINING, _combining(options.machine)))
    return tuple(x for x in found if x.name not in options.without)


def _combining(machine: MachineDescription) -> tuple[CollectiveCombiner, ...]:
    """Return the combiners. A combined collective waits for all operands: where it could be hidden, only small ones
    combine.

    Not on GPUs: on links of an H100 that carry a quarter, 93 % of Llama 8B's communication is hidden in such small
    collectives, and 99 % in larger ones, of which one at a time is in flight.
    """
    ways = [way for way in machine.exchanges if way.busy < 1.0]
    if not ways or machine.is_gpu:
        return COLLECTIVE_COMBINING
    most = int(LATENCIES * max(way.latency * way.bandwidth * way.attained for way in ways))
    return tuple(replace(x, max_bytes=min(x.max_bytes, most)) for x in COLLECTIVE_COMBINING)


@dataclass
class HidingNotes:
    """Reports of the latency-hiding passes.

    report: the scheduler's report, if it ran.
    blocking: names of starts that were made synchronous again -> names of the collectives that replaced them.
    """

    report: LatencyReport | None = None
    blocking: dict[str, str] = field(default_factory=dict)

    def record(self, notes: Iterable[object]) -> None:
        """Keep those of a pass's ``notes`` that are such reports."""
        for note in notes:
            if isinstance(note, LatencyReport):
                self.report = note
            elif isinstance(note, BlockingAgain):
                self.blocking |= note.names


def on_scheduled(options: CompileOptions) -> tuple[Pipeline, ...]:
    """Return the pipelines that run after kernels are made: windows of collectives, and an order that fills them within
    the memory limit.
    """
    if not options.machine.overlaps or CollectiveGroup.LATENCY_HIDING in options.without:
        return ()
    machine, costs, durations = options.machine, options.costs, options.durations
    limit = options.memory_limit or machine.memory_limit
    order = LatencyHidingScheduler(
        machine=machine, memory_limit=limit, costs=costs, durations=durations
    )
    blocking = AsyncToSync(machine=machine, costs=costs, durations=durations)
    return (Pipeline(CollectiveGroup.LATENCY_HIDING, (AsyncCreation(), order, blocking)),)
