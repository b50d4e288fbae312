"""Interface of the kinds of collectives. Each kind is one class in one file of this folder, read from top to bottom:

    definition       ``combine`` and ``deliver``: two pure functions that say by definition what each member receives
    facts            on which planners, checkers and cost models rely
    shared memory    the copies and reductions of one member in memory that all members reach
    messages         the exchanges of one member, and for groups that span nodes an algorithm in two levels
    NCCL             the calls of one GPU

Transports may move bytes in any of these ways, but must end with the same bits as the definition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from collectives.communicator.actions.array_actions import ArrayAction
from collectives.communicator.actions.device_actions import (
    DeviceActionBuilder,
    DeviceBuffers,
    NcclReduction,
    nccl_reduction,
)
from collectives.communicator.actions.engine import CollectiveEngine
from collectives.communicator.actions.shared_actions import CollectiveAction, Ends
from collectives.communicator.actions.shared_buffers import Buffers
from collectives.communicator.group import Array, Group, reduce_in_order
from collectives.communicator.hierarchical.algorithms import GroupNodes, HierarchicalAlgorithm
from spmd.device import ReductionKind
from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class LinkTraffic:
    """Facts about the bytes that members exchange, S in all (``Collective.exchanged_bytes``).

    algorithms: those that serve the kind besides "one-shot", in which each member sends to each. rounds: passes of the
    data around the group; an all-reduce is a reduce-scatter and an all-gather. sends_full_message: a peer receives S
    bytes in a one-shot exchange, otherwise S / n. from_root: one member alone sends. each_to_each: each pair of members
    has bytes of its own, so that no level of a hierarchy makes them fewer.
    """

    algorithms: tuple[str, ...] = ()
    rounds: int = 1
    sends_full_message: bool = False
    from_root: bool = False
    each_to_each: bool = False

    def sent(self, members: int) -> float:
        """Return the least bytes that each of ``members`` has to send per byte of S."""
        return 1.0 if self.from_root else self.rounds * (members - 1) / members


Members: TypeAlias = Sequence[Sequence[Array]]
"""Operands by member: members[i][k] is operand k of the group's i-th rank."""

T = TypeVar("T")


@dataclass(frozen=True)
class Collective(ABC):
    """One collective as one rank sees it: its own group, of which every member holds an equal record.

    Ranks in a group are distinct; their order gives each member its index.
    """

    kind: ClassVar[str]
    traffic: ClassVar[LinkTraffic]
    #: All members receive the same, so that they may hold it in the same memory.
    same_results: ClassVar[bool] = False
    #: The amounts that move lie in the operands' values.
    data_dependent: ClassVar[bool] = False
    #: A member that sends all of it may be done before another one starts (MPI: a rooted collective).
    rooted: ClassVar[bool] = False
    group: Group

    # ---- definition
    def combine(self, members: Members) -> Members:
        """Return the arrays from which every member takes its part; by default the operands."""
        return members

    @abstractmethod
    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        """Write the results of the group's ``index``-th rank."""

    @classmethod
    def of_attributes(cls, dimension: int | None, reduction: ReductionKind | None) -> Collective:
        """Return the collective of an instruction with these attributes, of devices that are still to be grouped."""
        return cls(())

    # ---- facts
    def of_rank(self, rank: int, groups: Sequence[Group]) -> Collective:
        """Return the collective of ``groups`` as ``rank`` sees it. Raises RunError if it is in no group."""
        for group in groups:
            if rank in group:
                return replace(self, group=group)
        raise RunError(f"rank {rank} is in none of the replica groups {groups}")

    def reads(self, reader: int, source: int) -> bool:
        """Return whether member ``reader`` needs operands of another member ``source``."""
        return True

    def sources(self, index: int) -> list[int]:
        """Return the other members whose operands member ``index`` reads."""
        return [i for i in self._others(index) if self.reads(index, i)]

    def readers(self, index: int) -> list[int]:
        """Return the other members that read operands of member ``index``."""
        return [i for i in self._others(index) if self.reads(i, index)]

    def own_tile(self, operand: T, result: T) -> tuple[T, T, int] | None:
        """Return (tile, whole, dimension) if one of the two is the member's own tile along ``dimension`` of the other.

        There it may lie in the other's memory: no member writes to that place, or no other member reads it.
        """
        return None

    def may_share_results(self, operands: Sequence[PrimitiveType]) -> bool:
        """Return whether members may hold the results in the same memory, with operands of these types."""
        return self.same_results

    def has_code(self, engine: CollectiveEngine, operands: Sequence[Array]) -> bool:
        """Return whether ``engine`` computes what this collective computes, if anything; the same for every member."""
        return True

    # ---- cost
    @classmethod
    def exchanged_bytes(cls, first_operand: float, results: float, members: int) -> float:
        """Return the bytes S that ``traffic`` is of, from the bytes that one member has."""
        return results

    def sent_per_result_byte(self, members: int, devices: int) -> float:
        """Return the bytes that a member sends per byte of its result, averaged over all ``devices``."""
        return self.traffic.sent(members) * self.exchanged_bytes(1.0, 1.0, members)

    # ---- memory that all members reach
    @abstractmethod
    def shared_transfer(self, ends: Ends) -> Iterator[CollectiveAction]:
        """Yield what one member copies and reduces, without waits."""

    def can_run_in_place(self, buffers: Buffers) -> bool:
        """Return whether members can read each other's operands where they lie, and end with the right results."""
        return True

    def overwrites_operands(self, buffers: Buffers) -> bool:
        """Return whether the transfer in place gives the right results on top of the operands, without staging."""
        return False

    def unread_overlaps(self) -> list[tuple[int, int]]:
        """Return pairs (operand, result) that may overlap in place: no other member reads the operand."""
        return []

    def awaited_in_place(self, index: int, buffers: Buffers) -> tuple[list[int], list[int]]:
        """Return the members that ``index`` awaits before its transfer in place, and after it."""
        return self.sources(index), self.readers(index)

    # ---- messages
    @abstractmethod
    def by_messages(
        self, index: int, operands: Sequence[Array], results: Sequence[Array]
    ) -> Iterator[ArrayAction]:
        """Yield the actions of member ``index`` on these very arrays, which are run any number of times.

        What goes to one member goes in one exchange, for all operands: a round costs more than a message.
        """

    def message_actions(
        self, rank: int, operands: Sequence[Array], results: Sequence[Array]
    ) -> tuple[ArrayAction, ...]:
        """Return the actions of ``rank``."""
        return tuple(self.by_messages(self.group.index(rank), operands, results))

    def hierarchical_algorithm(
        self, nodes: GroupNodes, buffers: Buffers
    ) -> HierarchicalAlgorithm | None:
        """Return the algorithm for a group on ``nodes`` of two levels; None if messages alone are as good.

        It depends on the nodes, and on shapes and types, alone: every member comes to the same.
        """
        return None

    # ---- NCCL
    def nccl_obstacle(self, dtypes: Sequence[np.dtype[Any]], version: int) -> str | None:
        """Return why NCCL of ``version`` does not do this, the same on all ranks, or None."""
        return None

    @property
    def copies_alone(self) -> bool:
        """Return whether the results are the operands in a group of one; otherwise they are zeros."""
        return True

    @abstractmethod
    def add_nccl_calls(
        self, builder: DeviceActionBuilder, buffers: DeviceBuffers, version: int
    ) -> None:
        """Add the actions of a group of several members, if ``nccl_obstacle`` is None."""

    def _others(self, index: int) -> list[int]:
        return [i for i in range(len(self.group)) if i != index]


@dataclass(frozen=True)
class ReducingCollective(Collective):
    """A collective that first reduces the operands of all members, one member after the other in group order."""

    reduction: ReductionKind

    def combine(self, members: Members) -> Members:
        totals = [np.empty_like(operand) for operand in members[0]]
        for k, total in enumerate(totals):
            reduce_in_order([member[k] for member in members], self.reduction, total)
        return [totals]

    def has_code(self, engine: CollectiveEngine, operands: Sequence[Array]) -> bool:
        return all(engine.can_reduce(operand.dtype, self.reduction) for operand in operands)

    def nccl_obstacle(self, dtypes: Sequence[np.dtype[Any]], version: int) -> str | None:
        found = (nccl_reduction(dtype, self.reduction, version) for dtype in dtypes)
        return next((reason for reason in found if isinstance(reason, str)), None)

    def nccl_reduction(self, dtype: np.dtype[Any], version: int) -> NcclReduction:
        """Return how NCCL reduces values of ``dtype``, if ``nccl_obstacle`` is None."""
        found = nccl_reduction(dtype, self.reduction, version)
        assert isinstance(found, NcclReduction), "`nccl_obstacle` has been asked"
        return found


@dataclass(frozen=True)
class CollectiveOp:
    """A collective of all ranks: the ``groups`` that meet, and what each of them does.

    The group of ``collective`` stands for the rank's own.
    """

    groups: tuple[Group, ...]
    collective: Collective

    def of_rank(self, rank: int) -> Collective:
        """Return the collective of ``rank``'s own group. Raises RunError if ``rank`` takes no part."""
        return self.collective.of_rank(rank, self.groups)
