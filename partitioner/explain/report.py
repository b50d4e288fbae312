"""Records of an explanation: frozen, without HLO. Bytes are per device and execution, times in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LinkModel:
    """Assumptions of a predicted time: a collective starts after ``latency_s`` and then moves its bytes at
    ``bytes_per_s``, alone on its link.
    """

    latency_s: float = 10e-6
    bytes_per_s: float = 25e9

    def seconds(self, wire_bytes: float) -> float:
        return self.latency_s + wire_bytes / self.bytes_per_s

    def __str__(self) -> str:
        return f"{self.bytes_per_s / 1e9:g} GB/s and {self.latency_s * 1e6:g} us per collective (assumed, not measured)"


@dataclass(frozen=True, slots=True)
class InstructionExplanation:
    """One value of the source. ``because``: one chain of causes per sharded axis, back to an annotation.

    ``array``: shape and sharding in short form, ``f32[8@data,16]``; the leaves of a tuple in parentheses.
    """

    name: str
    opcode: str
    shape: str
    sharding: str
    array: str
    because: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Remedy:
    """Annotation that removes a collective, as measured by partitioning again. ``wire_bytes_*``: total bytes that each
    device sends, before and after.
    """

    instruction: str
    sharding: str
    text: str
    wire_bytes_before: float
    wire_bytes_after: float
    flops_ratio: float
    argument_bytes_ratio: float


@dataclass(frozen=True, slots=True)
class CollectiveExplanation:
    """One collective of the per-device program.

    ``op``: the source instruction that it serves. ``value``: the instruction whose result it moves. ``sharding_from``
    and ``sharding_to``: the shardings of that value, "" if the op's own partitioning made the collective.
    ``array_from`` and ``array_to``: the same in short form, with the global shape. ``bytes``: size of its result.
    ``wire_bytes``: bytes that a device sends. ``received`` and ``bound``: those of the reshard that it is part of.
    ``executed``: number of executions per run.
    """

    name: str
    kind: str
    shape: str
    bytes: float
    wire_bytes: float
    executed: float
    seconds: float
    op: str
    value: str
    sharding_from: str
    sharding_to: str
    array_from: str
    array_to: str
    because: tuple[str, ...]
    source: str
    received: float
    bound: float
    remedy: Remedy | None = None
    remedies_tried: int | None = None

    @property
    def total_bytes(self) -> float:
        """The bytes sent over an entire run."""
        return self.wire_bytes * self.executed

    def as_json(self) -> dict[str, Any]:
        fields = asdict(self)
        fields["from"], fields["to"] = fields.pop("sharding_from"), fields.pop("sharding_to")
        return fields


@dataclass(frozen=True, slots=True)
class KindTotal:
    """Total of all collectives of one kind over an entire run."""

    kind: str
    count: int
    executed: float
    wire_bytes: float
    seconds: float

    @staticmethod
    def of(collectives: Sequence[CollectiveExplanation]) -> KindTotal:
        return KindTotal(
            collectives[0].kind,
            len(collectives),
            sum(c.executed for c in collectives),
            sum(c.total_bytes for c in collectives),
            sum(c.seconds * c.executed for c in collectives),
        )


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two tensors of ``op`` that require different shardings of one index, and the one that prevailed."""

    op: str
    kind: str
    text: str
    winner: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of a module. ``collectives`` are sorted, most bytes per run first."""

    module: str
    devices: int
    axes: Mapping[str, int]
    links: LinkModel
    instructions: tuple[InstructionExplanation, ...]
    collectives: tuple[CollectiveExplanation, ...]
    conflicts: tuple[Conflict, ...]

    @property
    def wire_bytes(self) -> float:
        return sum(c.total_bytes for c in self.collectives)

    def by_kind(self) -> tuple[KindTotal, ...]:
        """Return the total of each kind, most bytes first."""
        kinds = dict.fromkeys(c.kind for c in self.collectives)
        found = [KindTotal.of([c for c in self.collectives if c.kind == kind]) for kind in kinds]
        return tuple(sorted(found, key=lambda total: -total.wire_bytes))

    @property
    def seconds(self) -> float:
        return sum(c.seconds * c.executed for c in self.collectives)

    def costly(self, least_bytes: float, ratio: float = 1.5) -> tuple[CollectiveExplanation, ...]:
        """Return the collectives of reshards that receive more than ``least_bytes`` and more than ``ratio`` times their
        bound.
        """
        return tuple(
            c
            for c in self.collectives
            if c.sharding_from and c.received > least_bytes and c.received > ratio * c.bound
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "module": self.module,
            "devices": self.devices,
            "axes": dict(self.axes),
            "assumed": asdict(self.links),
            "wire_bytes": self.wire_bytes,
            "predicted_s": self.seconds,
            "kinds": [asdict(total) for total in self.by_kind()],
            "instructions": [asdict(i) for i in self.instructions],
            "collectives": [c.as_json() for c in self.collectives],
            "conflicts": [asdict(c) for c in self.conflicts],
        }
