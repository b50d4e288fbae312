"""The groups of passes on collectives, in the order in which a compilation has them (collective_pipelines.py)."""

from __future__ import annotations

from enum import StrEnum


class CollectiveGroup(StrEnum):
    SIMPLIFICATION = "collective-simplification"
    LOOP_UNROLLING = "loop-unrolling"
    PIPELINING = "collective-pipelining"
    WINDOWED_EINSUM = "windowed-einsum"
    COMBINING = "collective-combining"
    LATENCY_HIDING = "latency-hiding"


COLLECTIVE_GROUPS = tuple(group.value for group in CollectiveGroup)

#: Without these nothing overlaps; others make less to be sent.
OVERLAPPING = (
    CollectiveGroup.PIPELINING,
    CollectiveGroup.WINDOWED_EINSUM,
    CollectiveGroup.LATENCY_HIDING,
)
