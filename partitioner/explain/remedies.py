"""Remedies: annotations that remove a collective, found by trying them.

For a collective that brings value v of op o from state s to state t the candidates are: v in t; o in s (if o is an
annotation); the producers of v or o in a state without the axes that are summed over; and o with these axes on one of
its dimensions. Each candidate is partitioned. It is a remedy if the collective is gone, a device sends fewer bytes in
total, and no device computes or holds much more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from partitioner.explain.annotate import annotated, find_instruction, is_annotation
from partitioner.explain.causes import axis_source
from partitioner.explain.collectives import collectives_of
from partitioner.explain.placement import Placement
from partitioner.explain.report import CollectiveExplanation, Remedy
from partitioner.ops.annotation import SHAPE_CONVERSION_TARGETS
from partitioner.partition.shard_state import ShardState
from partitioner.report import Purpose, ReshardRecord
from partitioner.spmd_partitioner import SpmdPartitioner, partitioned
from spmd.analysis.cost import module_cost
from spmd.errors import SpmdError
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.hlo.collective_opcodes import KIND
from spmd.lazy_dataclass import dataclass
from spmd.ops.custom_call import custom_call_target
from spmd.shape import ArrayShape
from spmd.sharding import HloSharding

#: Limits of a remedy: growth of a device's arithmetic and of its argument bytes.
MAX_FLOPS_RATIO = 1.05
MAX_ARGUMENT_RATIO = 1.1

#: Identity of a collective in two partitionings of nearly the same module: kind, op served, value moved.
CollectiveKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """Cost figures of one partitioning. ``collective_counts``: number of collectives of each kind and shape."""

    wire_bytes: float
    flops: float
    argument_bytes: float
    keys: frozenset[CollectiveKey]
    collective_counts: Mapping[tuple[str, str], int]


def partition_figures(driver: SpmdPartitioner) -> PartitionFigures:
    cost = module_cost(driver.result)
    record_of = {c: r for r in driver.report.reshards for c in r.collectives}
    found = list(collectives_of(driver.result))
    keys = frozenset(
        (KIND[c.opcode], record_of[c].serving.name, record_of[c].value.name)
        for c in found
        if c in record_of
    )
    return PartitionFigures(
        cost.wire_bytes,
        cost.flops,
        float(sum(p.shape.byte_size for p in driver.result.entry.parameters)),
        keys,
        Counter((KIND[c.opcode], str(c.shape)) for c in found),
    )


class RemedySearch:
    """Search for remedies in one module. It tries each annotation at most once."""

    def __init__(
        self,
        module: HloModule,
        driver: SpmdPartitioner,
        record_of: Mapping[HloInstruction, ReshardRecord],
        placement: Placement,
    ) -> None:
        self.module = module
        self.driver = driver
        self._placement = placement
        self._records = {c.name: r for c, r in record_of.items() if c.parent is not None}
        self._before = partition_figures(driver)
        self._tried: dict[tuple[str, HloSharding], PartitionFigures | None] = {}

    @property
    def num_tried(self) -> int:
        """The number of partitionings done so far."""
        return len(self._tried)

    def cheapest(self, collective: CollectiveExplanation) -> tuple[Remedy | None, int]:
        """Return the remedy with the fewest bytes to send (None if there is none) and the number of
        annotations tried.
        """
        record = self._records.get(collective.name)
        if record is None or not collective.value:
            return None, 0
        found: list[Remedy] = []
        candidates = dict.fromkeys(self._candidates(record))
        for instruction, state in candidates:
            after = self._try(instruction, self._placement.sharding(state))
            if after is not None and self._removes(collective, after):
                found.append(self._remedy(instruction, state, after))
        best = min(found, key=lambda r: r.wire_bytes_after, default=None)
        return best, len(candidates)

    # ---- candidates
    def _candidates(self, record: ReshardRecord) -> Iterator[tuple[str, ShardState]]:
        for instruction, state in self._states(record):
            if (
                isinstance(instruction.shape, ArrayShape)
                and instruction.array_shape.rank == state.rank
                and not state.partial
                and custom_call_target(instruction) not in SHAPE_CONVERSION_TARGETS
                and find_instruction(self.module, instruction.name) is not None
            ):
                yield instruction.name, state

    def _states(self, record: ReshardRecord) -> Iterator[tuple[HloInstruction, ShardState]]:
        value, op = record.value, record.serving
        for source in (*self._annotators(record), value, *_same_value(value)):
            yield source, record.target
        if is_annotation(op) or record.purpose is Purpose.RESULT:
            yield op, record.source
        if record.source.partial:
            yield from self._scattered(record)
            yield from self._unsplit_operands(record)
        for user in (u for u in value.users if u is not op and is_annotation(u)):
            yield user, record.target

    def _annotators(self, record: ReshardRecord) -> Iterator[HloInstruction]:
        """Yield values of the same sizes whose annotations gave the moved value its axes."""
        shardings = self.driver.graph.shardings(record.value)
        if len(shardings) != 1 or shardings[0] is None:
            return
        for axis in record.source.used:
            source = axis_source(shardings[0], axis)
            found = find_instruction(self.driver.module, source.name)
            if found is not None and source.shape.dims == record.shape.dims:
                yield found

    def _scattered(self, record: ReshardRecord) -> Iterator[tuple[HloInstruction, ShardState]]:
        """Yield the result further split by the axes that were summed over: a reduce-scatter moves less."""
        axes = record.source.partial
        for dim, dim_axes in enumerate(record.target.dims):
            split = self.driver.axes.count((*dim_axes, *axes))
            if set(axes).isdisjoint(record.target.used) and record.shape.dims[dim] % split == 0:
                wanted = record.target.with_dim(dim, (*dim_axes, *axes))
                yield record.value, wanted
                for user in record.value.users:
                    if _keeps_shape(user, record.value):
                        yield user, wanted

    def _unsplit_operands(
        self, record: ReshardRecord
    ) -> Iterator[tuple[HloInstruction, ShardState]]:
        """Yield operands without the axes that are summed over: the op then computes complete sums."""
        banned = set(record.source.partial)
        for operand in record.value.operands:
            shardings = self.driver.graph.shardings(operand)
            if len(shardings) != 1 or shardings[0] is None:
                continue
            dims = tuple(tuple(a for a in d if a not in banned) for d in shardings[0].dims)
            if dims != shardings[0].state_dims:
                for source in (operand, *_same_value(operand)):
                    yield source, ShardState(dims)

    # ---- trying
    def _try(self, instruction: str, sharding: HloSharding) -> PartitionFigures | None:
        key = (instruction, sharding)
        if key not in self._tried:
            try:
                copy = annotated(self.module, instruction, sharding)
                self._tried[key] = partition_figures(partitioned(copy, self.driver.num_devices))
            except SpmdError:  # the annotation does not fit, or an op does not support it
                self._tried[key] = None
        return self._tried[key]

    def _removes(self, collective: CollectiveExplanation, after: PartitionFigures) -> bool:
        before, key = self._before, (collective.kind, collective.shape)
        return (
            after.wire_bytes < before.wire_bytes
            and (collective.kind, collective.op, collective.value) not in after.keys
            and after.collective_counts.get(key, 0) < before.collective_counts[key]
            and after.flops <= MAX_FLOPS_RATIO * before.flops
            and after.argument_bytes <= MAX_ARGUMENT_RATIO * before.argument_bytes
        )

    def _remedy(self, name: str, state: ShardState, after: PartitionFigures) -> Remedy:
        instruction = find_instruction(self.module, name)
        replaces = instruction is not None and is_annotation(instruction)
        verb = "annotate" if replaces else "constrain"
        sharding = self._placement.sharding(state)
        spec = self._placement.partition_spec(state.dims)
        with_spec = f"{sharding} [{spec}]" if spec else str(sharding)
        before = self._before
        return Remedy(
            name,
            str(sharding),
            f"{verb} {name} with {with_spec}: "
            f"{before.wire_bytes - after.wire_bytes:,.0f} bytes less to send per device",
            before.wire_bytes,
            after.wire_bytes,
            after.flops / before.flops if before.flops else 1.0,
            after.argument_bytes / before.argument_bytes if before.argument_bytes else 1.0,
        )


_CARRIERS = (Opcode.COPY, Opcode.CONVERT, Opcode.NEGATE)


def _same_value(value: HloInstruction) -> Iterator[HloInstruction]:
    """Yield the arrays from which ``value`` was made, element by element from a single array."""
    while value.opcode in _CARRIERS or custom_call_target(value) == "Sharding":
        value = value.operand(0)
        yield value


def _keeps_shape(user: HloInstruction, value: HloInstruction) -> bool:
    return isinstance(user.shape, ArrayShape) and user.dims == value.dims
