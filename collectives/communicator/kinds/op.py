"""Interface of the kinds of collectives. Each kind is one class in one file of this folder, read from top to bottom:

    definition       ``combine`` and ``deliver``: two pure functions that define what each member receives
    facts            properties on which planners, checkers and cost models rely
    shared memory    the copies and reductions of one member in memory that all members reach
    messages         the exchanges of one member, and for groups that span nodes an algorithm in two levels
    NCCL             the calls of one GPU

A transport may move bytes in any of these ways. Its results must equal those of the definition bit by bit, with one
exception: NCCL reduces in an order, and rounds narrow floats, in its own way (docs/gpu.md).
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
    """Pattern of the messages of a kind, for cost models. S is the value of ``Collective.exchanged_bytes``.

    algorithms: the names of algorithms that serve the kind besides "one-shot", in which each member sends to each.
    rounds: the number of times that the data passes around the group; two for an all-reduce, which is a reduce-scatter
    and an all-gather. sends_full_message: a peer receives S bytes in a one-shot exchange, otherwise S / n. from_root:
    only one member sends. each_to_each: each pair of members exchanges other bytes, so that no level of a hierarchy
    reduces them.
    """

    algorithms: tuple[str, ...] = ()
    rounds: int = 1
    sends_full_message: bool = False
    from_root: bool = False
    each_to_each: bool = False

    def sent(self, members: int) -> float:
        """Return the fewest bytes that each of ``members`` members has to send, as a multiple of S."""
        return 1.0 if self.from_root else self.rounds * (members - 1) / members


Members: TypeAlias = Sequence[Sequence[Array]]
"""Operands by member: members[i][k] is operand k of the group's i-th rank."""

T = TypeVar("T")


@dataclass(frozen=True)
class Collective(ABC):
    """One collective as one rank sees it, with the rank's own group. All members of the group have equal records.

    Ranks in a group are distinct; a member's index is the position of its rank in the group.
    """

    kind: ClassVar[str]
    traffic: ClassVar[LinkTraffic]
    #: All members receive equal results, which they may hold in the same memory.
    same_results: ClassVar[bool] = False
    #: The sizes of messages depend on the values of operands.
    data_dependent: ClassVar[bool] = False
    #: A member that only sends may complete the collective before others start it (MPI: a rooted collective).
    rooted: ClassVar[bool] = False
    group: Group

    # ---- definition
    def combine(self, members: Members) -> Members:
        """Return the arrays from which ``deliver`` takes each member's results: the operands, unless a kind reduces."""
        return members

    @abstractmethod
    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        """Write the results of member ``index`` of the group. ``combined`` is the value of ``combine``."""

    @classmethod
    def of_attributes(cls, dimension: int | None, reduction: ReductionKind | None) -> Collective:
        """Return the collective of an instruction with these attributes. Its group is empty; ``of_rank`` sets it."""
        return cls(())

    # ---- facts
    def of_rank(self, rank: int, groups: Sequence[Group]) -> Collective:
        """Return this collective in the one of ``groups`` that contains ``rank``. Raises RunError if none does."""
        for group in groups:
            if rank in group:
                return replace(self, group=group)
        raise RunError(f"rank {rank} is in none of the replica groups {groups}")

    def reads(self, reader: int, source: int) -> bool:
        """Return whether member ``reader`` reads operands of ``source``, another member."""
        return True

    def sources(self, index: int) -> list[int]:
        """Return the other members whose operands member ``index`` reads."""
        return [i for i in self._others(index) if self.reads(index, i)]

    def readers(self, index: int) -> list[int]:
        """Return the other members that read operands of member ``index``."""
        return [i for i in self._others(index) if self.reads(i, index)]

    def own_tile(self, operand: T, result: T) -> tuple[T, T, int] | None:
        """Return (tile, full, dimension) if one of the arrays is the member's own tile of the other, otherwise None.

        ``dimension`` is the one along which tiles follow each other. The tile may share memory with its part of the
        full array: no other member writes this part of an all-gather's result, and no other member reads this part of a
        reduce-scatter's operand. ``operand`` and ``result`` are arrays or descriptions of arrays; both are returned
        unchanged.
        """
        return None

    def may_share_results(self, operands: Sequence[PrimitiveType]) -> bool:
        """Return whether members may hold the results once, in memory that they share, if operands have these types."""
        return self.same_results

    def has_code(self, engine: CollectiveEngine, operands: Sequence[Array]) -> bool:
        """Return whether ``engine`` can compute this collective's reductions. The answer is equal on every member."""
        return True

    # ---- cost
    @classmethod
    def exchanged_bytes(cls, first_operand: float, results: float, members: int) -> float:
        """Return S, the bytes to which ``traffic`` refers, for a group of ``members`` members.

        ``first_operand`` is the size of one member's first operand in bytes, ``results`` that of all its results.
        """
        return results

    def sent_per_result_byte(self, members: int, devices: int) -> float:
        """Return the bytes that a member sends for each byte of its result, averaged over all ``devices``."""
        return self.traffic.sent(members) * self.exchanged_bytes(1.0, 1.0, members)

    def read_per_result_byte(self, members: int, devices: int) -> float:
        """Return the bytes that a member reads from others' memory for each byte of its result, averaged likewise."""
        return self.sent_per_result_byte(members, devices)

    # ---- memory that all members reach
    @abstractmethod
    def shared_transfer(self, ends: Ends) -> Iterator[CollectiveAction]:
        """Yield the copies and reductions of member ``ends.index``, without waits."""

    def can_run_in_place(self, buffers: Buffers) -> bool:
        """Return whether the results are right if members read each other's operands directly, without slots."""
        return True

    def overwrites_operands(self, buffers: Buffers) -> bool:
        """Return whether the transfer in place may write results over operands, without staging."""
        return False

    def unread_overlaps(self) -> list[tuple[int, int]]:
        """Return the pairs (operand, result) that may overlap in place, since no other member reads the operand."""
        return []

    def awaited_in_place(self, index: int, buffers: Buffers) -> tuple[list[int], list[int]]:
        """Return the members that member ``index`` awaits before its transfer in place, and those afterwards."""
        return self.sources(index), self.readers(index)

    # ---- messages
    @abstractmethod
    def by_messages(
        self, index: int, operands: Sequence[Array], results: Sequence[Array]
    ) -> Iterator[ArrayAction]:
        """Yield the actions of member ``index`` on these arrays. The sequence may run any number of times.

        All operands share the exchanges: a further round of messages costs more than a further message.
        """

    def message_actions(
        self, rank: int, operands: Sequence[Array], results: Sequence[Array]
    ) -> tuple[ArrayAction, ...]:
        """Return the actions by messages of ``rank`` on these arrays, as ``by_messages`` does."""
        return tuple(self.by_messages(self.group.index(rank), operands, results))

    def hierarchical_algorithm(
        self, nodes: GroupNodes, buffers: Buffers
    ) -> HierarchicalAlgorithm | None:
        """Return the algorithm in two levels for the group on ``nodes``; None if messages alone are as good.

        The choice depends on the nodes and on shapes and types alone, so every member makes the same one.
        """
        return None

    # ---- NCCL
    def nccl_obstacle(self, dtypes: Sequence[np.dtype[Any]], version: int) -> str | None:
        """Return why NCCL of ``version`` cannot run this collective on ``dtypes``, or None; equal on all ranks."""
        return None

    @property
    def copies_alone(self) -> bool:
        """Return whether the results in a group of one member are its operands; otherwise they are zeros."""
        return True

    @abstractmethod
    def add_nccl_calls(
        self, builder: DeviceActionBuilder, buffers: DeviceBuffers, version: int
    ) -> None:
        """Add the actions of member ``builder.index`` in a group of several members. ``nccl_obstacle`` must be None."""

    def _others(self, index: int) -> list[int]:
        """Return the indices of all members except ``index``."""
        return [i for i in range(len(self.group)) if i != index]


@dataclass(frozen=True)
class ReducingCollective(Collective):
    """A collective that first reduces the operands of all members, one member after the other in group order."""

    reduction: ReductionKind

    def combine(self, members: Members) -> Members:
        """Return one entry: the totals of all members' operands."""
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
        """Return how NCCL of ``version`` reduces values of ``dtype``. ``nccl_obstacle`` must be None."""
        found = nccl_reduction(dtype, self.reduction, version)
        assert isinstance(found, NcclReduction), "`nccl_obstacle` has been asked"
        return found


@dataclass(frozen=True)
class CollectiveOp:
    """A collective on all ranks: the ``groups`` among which it runs, and what each group does.

    ``of_rank`` replaces the group of ``collective`` by the group of a rank.
    """

    groups: tuple[Group, ...]
    collective: Collective

    def of_rank(self, rank: int) -> Collective:
        """Return the collective in the group of ``rank``. Raises RunError if no group contains ``rank``."""
        return self.collective.of_rank(rank, self.groups)
