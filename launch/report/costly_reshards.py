"""Values that partitioning moved at much more than the least possible traffic: most often, replicated on the way."""

from __future__ import annotations

from typing import Any

from partitioner.explain.placement import Placement
from partitioner.spmd_partitioner import SpmdPartitioner
from spmd.lazy_dataclass import dataclass

#: Reshards of fewer bytes than this are not worth an annotation.
LEAST_BYTES = 4096.0
#: Received bytes over their lower bound from which a reshard counts as costly.
RATIO = 1.5


@dataclass(frozen=True, slots=True)
class CostlyReshard:
    """Value ``op`` on its way to ``used_by``; bytes that a device receives in one execution, averaged over devices."""

    op: str
    used_by: str
    shape: str
    source: str
    target: str
    bytes: float
    bound: float

    def as_json(self) -> dict[str, Any]:
        return {
            "op": self.op,
            "used_by": self.used_by,
            "shape": self.shape,
            "from": self.source,
            "to": self.target,
            "bytes": self.bytes,
            "bound": self.bound,
        }


def costly_reshards(done: SpmdPartitioner) -> tuple[CostlyReshard, ...]:
    """Return the costly reshards that are still in the partitioner's result, in program order."""
    remaining = set(done.result.all_instructions())
    placement = Placement(done)
    return tuple(
        CostlyReshard(
            record.value.name,
            record.serving.name,
            str(record.shape.without_layout()),
            placement.hlo(record.source),
            placement.hlo(record.target),
            record.received,
            record.bound,
        )
        for record in done.report.costly(LEAST_BYTES, RATIO)
        if any(collective in remaining for collective in record.collectives)
    )
