"""Entry point of the explanations, explain_module: partition a module, then explain the result. Read this first.

partition -> shardings and their chains -> collectives and their causes -> conflicts -> remedies
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.explain.causes import sharding_causes
from partitioner.explain.collectives import CollectiveExplainer
from partitioner.explain.conflicts import find_conflicts
from partitioner.explain.placement import Placement
from partitioner.explain.remedies import RemedySearch
from partitioner.explain.report import (
    CollectiveExplanation,
    Explanation,
    InstructionExplanation,
    LinkModel,
)
from partitioner.partition.shard_state import ShardState
from partitioner.propagate_module import instruction_sharding
from partitioner.spmd_partitioner import SpmdPartitioner, partitioned
from spmd.analysis.source_lines import SourceLines
from spmd.hlo import HloInstruction, HloModule

#: Number of annotations tried as remedies; each one is a partitioning of its own.
DEFAULT_MAX_TRIED = 32


def explain_module(
    module: HloModule,
    num_devices: int,
    *,
    links: LinkModel | None = None,
    max_tried: int = DEFAULT_MAX_TRIED,
) -> Explanation:
    """Explain the partitioning of a logical module; ``module`` stays as it is.

    About ``max_tried`` annotations are tried as remedies. Raises the errors of partition_module.
    """
    links = links or LinkModel()
    driver = partitioned(module, num_devices)
    lines = SourceLines(module)
    explainer = CollectiveExplainer(driver, links, lines)
    collectives = explainer.all()
    search = RemedySearch(module, driver, explainer.record_of, explainer.placement)
    return Explanation(
        module=module.name,
        devices=num_devices,
        axes=explainer.names.sizes(),
        links=links,
        instructions=tuple(
            _instruction(driver, i, explainer.placement, lines) for i in driver.graph.instructions()
        ),
        collectives=_with_remedies(collectives, search, max_tried),
        conflicts=find_conflicts(driver.axes, driver.graph.edges, driver.report, explainer.names),
    )


def _instruction(
    driver: SpmdPartitioner, instruction: HloInstruction, placement: Placement, lines: SourceLines
) -> InstructionExplanation:
    values = driver.graph.shardings(instruction)
    because = [
        line if len(values) == 1 else f"leaf {leaf}: {line}"
        for leaf, value in enumerate(values)
        if value is not None
        for line in sharding_causes(value, placement.names)
    ]
    sharding = instruction_sharding(driver.axes, values, instruction.shape)
    arrays = [
        placement.array(value.shape, ShardState(value.state_dims))
        if value is not None
        else "token[]"
        for value in values
    ]
    return InstructionExplanation(
        name=instruction.name,
        opcode=instruction.opcode.value,
        shape=str(instruction.shape),
        sharding=str(placement.on_devices(sharding)),
        array=arrays[0] if len(arrays) == 1 else f"({', '.join(arrays)})",
        because=tuple(because),
        source=lines.of(instruction),
    )


def _with_remedies(
    collectives: tuple[CollectiveExplanation, ...], search: RemedySearch, max_tried: int
) -> tuple[CollectiveExplanation, ...]:
    """Return the collectives with remedies. Those that only move data come first, since one annotation more often
    removes them; then by bytes.
    """
    found = list(collectives)
    reduces = [c.kind in ("all-reduce", "reduce-scatter") for c in found]
    for i in sorted(range(len(found)), key=lambda i: (reduces[i], i)):
        if search.num_tried >= max_tried:
            break
        remedy, tried = search.cheapest(found[i])
        found[i] = replace(found[i], remedy=remedy, remedies_tried=tried)
    return tuple(found)
