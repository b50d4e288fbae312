"""Explanations of the collectives of a partitioned module: the reshard or op that made each one, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from partitioner.annotations.reader import CONSTRAINT_TARGETS
from partitioner.explain.causes import sharding_causes
from partitioner.explain.placement import Placement
from partitioner.explain.report import CollectiveExplanation, LinkModel
from partitioner.ops.annotation import SHAPE_CONVERSION_TARGETS
from partitioner.propagation.driver import ValueSharding
from partitioner.report import Purpose, ReshardRecord
from partitioner.spmd_partitioner import SpmdPartitioner
from spmd.analysis.executions import executions
from spmd.analysis.source_lines import SourceLines
from spmd.analysis.wire import result_bytes, wire_weight
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.hlo.collective_opcodes import KIND
from spmd.ops.custom_call import custom_call_target


class CollectiveExplainer:
    """Explainer of the collectives of one partitioning."""

    def __init__(self, driver: SpmdPartitioner, links: LinkModel, lines: SourceLines) -> None:
        self.driver = driver
        self.links = links
        self.lines = lines
        self.placement = Placement(driver)
        self.names = self.placement.names
        self.record_of = {c: r for r in driver.report.reshards for c in r.collectives}

    def all(self) -> tuple[CollectiveExplanation, ...]:
        """Return all collectives, most bytes per run first; equal ones in program order."""
        times = executions(self.driver.result)
        found = [self._explain(c, times) for c in collectives_of(self.driver.result)]
        return tuple(sorted(found, key=lambda c: -c.total_bytes))

    def _explain(
        self, collective: HloInstruction, times: Mapping[HloComputation, int]
    ) -> CollectiveExplanation:
        assert collective.parent is not None
        record = self.record_of.get(collective)
        op = record.serving if record else self.driver.report.op_collectives.get(collective)
        size = result_bytes(collective)
        sent = size * wire_weight(collective, self.driver.num_devices)
        source = self.lines.of(op) if op is not None else ""
        return CollectiveExplanation(
            name=collective.name,
            kind=KIND[collective.opcode],
            shape=str(collective.shape),
            bytes=size,
            wire_bytes=sent,
            executed=float(times[collective.parent]),
            seconds=self.links.seconds(sent),
            op=op.name if op is not None else "",
            value=record.value.name if record else "",
            sharding_from=self.placement.hlo(record.source) if record else "",
            sharding_to=self.placement.hlo(record.target) if record else "",
            array_from=self.placement.array(record.shape, record.source) if record else "",
            array_to=self.placement.array(record.shape, record.target) if record else "",
            because=self._because(record) if record else (own_collective(op, collective),),
            source=source or (self.lines.of(record.value) if record else ""),
            received=record.received if record else sent,
            bound=record.bound if record else sent,
        )

    def _because(self, record: ReshardRecord) -> tuple[str, ...]:
        lines = [self._sentence(record)]
        for title, instruction in (("has", record.value), ("wants", record.serving)):
            if title == "wants" and instruction is record.value:
                continue
            for sharding in self._shardings(instruction):
                lines += [
                    f"{instruction.name} {title} {line}"
                    for line in sharding_causes(sharding, self.names)
                ]
        return tuple(lines)

    def _shardings(self, instruction: HloInstruction) -> Iterator[ValueSharding]:
        """Yield the sharding of an array. There is none for a tuple, whose shardings do not belong to one value."""
        shardings = self.driver.graph.shardings(instruction)
        if len(shardings) == 1 and shardings[0] is not None:
            yield shardings[0]

    def _sentence(self, record: ReshardRecord) -> str:
        op, value = record.serving, record.value
        if record.source.partial:
            over = self.names.join(record.source.partial)
            what = f"partial result of {value.name}: each device holds one term per {over}"
            if record.purpose is Purpose.RESULT:
                return f"{what}; this collective reduces them"
            return f"{what}; the reduced value is needed: {self._asker(record)}"
        if record.purpose is Purpose.RESULT:
            return f"{op.name} computes {value.name} in another sharding than the propagated one"
        return f"{value.name} is needed in another sharding: {self._asker(record)}"

    def _asker(self, record: ReshardRecord) -> str:
        op = record.serving
        if record.purpose is Purpose.OUTPUT:
            return f"the annotation of the module's result ({op.name})"
        target = custom_call_target(op)
        if target in CONSTRAINT_TARGETS:
            return f"annotation {op.name}"
        if target in SHAPE_CONVERSION_TARGETS:
            return f"the edge of a manual region, {op.name}"
        if record.purpose is Purpose.CARRIED or op.opcode in (Opcode.WHILE, Opcode.CONDITIONAL):
            return f"{op.name} carries the value in one sharding"
        return f"operand of {op.name} ({op.opcode.value})"


def own_collective(op: HloInstruction | None, collective: HloInstruction) -> str:
    """Return the reason for a collective that belongs to no reshard."""
    if op is None:
        return "a parameter or result is converted from its annotation, whose device axes do not nest with the others"
    if op.opcode in KIND:
        return f"explicit in the program: {op.name}"
    moves = KIND[collective.opcode] == "collective-permute"
    what = (
        "neighbours exchange the edges of their tiles"
        if moves
        else "devices combine partial results"
    )
    return f"from the partitioning of {op.name} ({op.opcode.value}) itself: {what}"


def collectives_of(module: HloModule) -> Iterator[HloInstruction]:
    for computation in module.computations_post_order():
        yield from (i for i in computation.instructions if i.opcode in KIND)
