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

#: Groups without which nothing overlaps; the other groups reduce the bytes that are sent.
OVERLAPPING = (
    CollectiveGroup.PIPELINING,
    CollectiveGroup.WINDOWED_EINSUM,
    CollectiveGroup.LATENCY_HIDING,
)
