"""Collectives of all ranks as plain data: groups, and what kind each is. ``of_rank`` gives one rank its own part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from collectives.communicator import kinds
from collectives.communicator.kinds import Collective, Group
from spmd.device import ReductionKind
from spmd.errors import RunError


@dataclass(frozen=True)
class CollectivePlan(ABC):
    """``groups``: the ranks that meet, in the order in which their parts stand."""

    groups: tuple[Group, ...]

    @abstractmethod
    def with_group(self, group: Group) -> Collective:
        """The collective among ``group``."""

    def of_rank(self, rank: int) -> Collective:
        for group in self.groups:
            if rank in group:
                return self.with_group(group)
        raise RunError(f"rank {rank} is in none of the replica groups {self.groups}")


@dataclass(frozen=True)
class AllReducePlan(CollectivePlan):
    reduction: ReductionKind

    def with_group(self, group: Group) -> Collective:
        return kinds.AllReduce(group, self.reduction)


@dataclass(frozen=True)
class AllGatherPlan(CollectivePlan):
    dimension: int

    def with_group(self, group: Group) -> Collective:
        return kinds.AllGather(group, self.dimension)


@dataclass(frozen=True)
class ReduceScatterPlan(CollectivePlan):
    reduction: ReductionKind
    dimension: int

    def with_group(self, group: Group) -> Collective:
        return kinds.ReduceScatter(group, self.reduction, self.dimension)


@dataclass(frozen=True)
class AllToAllPlan(CollectivePlan):
    """``concat_dimension``: where results are put together along another dimension than operands are cut."""

    dimension: int | None
    concat_dimension: int | None = None

    def with_group(self, group: Group) -> Collective:
        return kinds.AllToAll(group, self.dimension, self.concat_dimension)


@dataclass(frozen=True)
class CollectiveBroadcastPlan(CollectivePlan):
    def with_group(self, group: Group) -> Collective:
        return kinds.CollectiveBroadcast(group)


@dataclass(frozen=True)
class RaggedAllToAllPlan(CollectivePlan):
    def with_group(self, group: Group) -> Collective:
        return kinds.RaggedAllToAll(group)


@dataclass(frozen=True)
class CollectivePermutePlan(CollectivePlan):
    """``groups`` is the one group of all ranks in ``pairs``; a rank in no pair receives zeros."""

    pairs: tuple[tuple[int, int], ...]

    def with_group(self, group: Group) -> Collective:
        return kinds.CollectivePermute(group, self.pairs)

    def of_rank(self, rank: int) -> Collective:
        return kinds.CollectivePermute.among(self.pairs, rank)
