"""The pipelines of passes on collectives, in groups that a compilation can do without.

A machine whose devices compute while bytes move (``MachineDescription.overlaps``) gets all of them: collectives go out
of the way of what needs them, and the schedule an order in which they are in flight beside other work. Where processors
move the bytes themselves, as those of one node do, only those are left that make less to be sent or waited for.
"""

from __future__ import annotations

from dataclasses import replace

from collectives.passes.all_passes import COLLECTIVE_COMBINING, COLLECTIVE_SIMPLIFICATION
from collectives.passes.all_to_all_pipeliner import AllToAllPipeliner
from collectives.passes.async_creation import AsyncCreation
from collectives.passes.async_to_sync import AsyncToSync
from collectives.passes.collective_pipeliner import CollectivePipeliner
from collectives.passes.latency_hiding_scheduler import LatencyHidingScheduler
from collectives.passes.windowed_einsum import WindowedEinsum
from launch.options import CompileOptions
from spmd.machine.named import introduce
from spmd.passes.pipeline import Pipeline

SIMPLIFICATION = Pipeline("collective-simplification", COLLECTIVE_SIMPLIFICATION)
PIPELINING = Pipeline("collective-pipelining", (CollectivePipeliner(),))
WINDOWS = Pipeline("windowed-einsum", (WindowedEinsum(), AllToAllPipeliner()))
COMBINING = Pipeline("collective-combining", COLLECTIVE_COMBINING)
HIDING = Pipeline("latency-hiding", (AsyncCreation(), LatencyHidingScheduler(), AsyncToSync()))


def on_optimized(options: CompileOptions) -> tuple[Pipeline, ...]:
    """Before layouts and kernels are chosen."""
    found = [SIMPLIFICATION]
    if options.machine.overlaps:
        name = introduce(options.machine).name
        windows = (WindowedEinsum(machine=name), AllToAllPipeliner(machine=name))
        found += [PIPELINING, replace(WINDOWS, passes=windows)]
    return tuple(x for x in (*found, COMBINING) if x.name not in options.without)


def on_scheduled(options: CompileOptions) -> tuple[Pipeline, ...]:
    """When kernels are made: windows of collectives, and an order that fills them within the memory there is."""
    if not options.machine.overlaps or HIDING.name in options.without:
        return ()
    machine = introduce(options.machine)
    limit = options.memory_limit or machine.memory_limit
    name, costs = machine.name, options.costs
    order = LatencyHidingScheduler(machine=name, memory_limit=limit, costs=costs)
    passes = (AsyncCreation(), order, AsyncToSync(machine=name, costs=costs))
    return (replace(HIDING, passes=passes),)
