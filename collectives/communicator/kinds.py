"""The collectives as values: whom they join, and by definition what each member receives.

Each kind has the same two pure functions. ``combine`` takes the operands of all members, in group order, and
does once what all share; ``deliver`` writes one member's results from it. Communicators may move bytes
otherwise, but must end with the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from collectives.communicator.reduction import Array, reduce_in_order
from spmd.device import ReductionKind

Group: TypeAlias = tuple[int, ...]
Members: TypeAlias = Sequence[Sequence[Array]]
"""Operands by member: members[i][k] is operand k of the group's i-th rank."""


@dataclass(frozen=True)
class Collective(ABC):
    """One collective as one rank sees it: its own group, of which every member holds an equal record.

    Ranks in a group are distinct; their order gives each member its index.
    """

    kind: ClassVar[str]
    group: Group

    def combine(self, members: Members) -> Members:
        """Return the arrays from which every member takes its part; by default the operands."""
        return members

    @abstractmethod
    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        """Write the results of the group's ``index``-th rank."""


@dataclass(frozen=True)
class AllReduce(Collective):
    """Every member receives the reduction of all members' operands.

    group (0,1), sum:   0: [1,2]   1: [10,20]   =>   both [11,22]
    """

    kind = "all-reduce"
    reduction: ReductionKind

    def combine(self, members: Members) -> Members:
        return [_reduce_each(members, self.reduction)]

    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        for total, result in zip(combined[0], results, strict=True):
            np.copyto(result, total)


@dataclass(frozen=True)
class AllGather(Collective):
    """Every member receives all members' operands, concatenated along ``dimension``.

    group (0,1):   0: [1,2]   1: [3,4]   =>   both [1,2,3,4]
    """

    kind = "all-gather"
    dimension: int

    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        for k, result in enumerate(results):
            np.concatenate([member[k] for member in combined], axis=self.dimension, out=result)


@dataclass(frozen=True)
class ReduceScatter(Collective):
    """The reduction of all members' operands, cut along ``dimension``; the i-th member receives the i-th part.

    group (0,1), sum:   0: [1,2]   1: [10,20]   =>   0: [11]   1: [22]
    """

    kind = "reduce-scatter"
    reduction: ReductionKind
    dimension: int

    def combine(self, members: Members) -> Members:
        return [_reduce_each(members, self.reduction)]

    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        for total, result in zip(combined[0], results, strict=True):
            np.copyto(result, np.split(total, len(self.group), axis=self.dimension)[index])


@dataclass(frozen=True)
class AllToAll(Collective):
    """Member i's j-th part goes to member j, as its i-th part.

        group (0,1), dimension 0:   0: [1,2]   1: [3,4]   =>   0: [1,3]   1: [2,4]

    With a dimension, each operand is cut along it and each result concatenated along it, or along
    ``concat_dimension`` where that is given. With None (the tuple form), the operands themselves are the parts, one per
    member, and so are the results.
    """

    kind = "all-to-all"
    dimension: int | None
    concat_dimension: int | None = None

    @property
    def joined(self) -> int | None:
        """The dimension along which a result is put together."""
        return self.dimension if self.concat_dimension is None else self.concat_dimension

    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        if self.dimension is None:
            for member, result in zip(combined, results, strict=True):
                np.copyto(result, member[index])
            return
        count = len(self.group)
        for k, result in enumerate(results):
            parts = [np.split(member[k], count, axis=self.dimension)[index] for member in combined]
            np.concatenate(parts, axis=self.joined, out=result)


@dataclass(frozen=True)
class CollectivePermute(Collective):
    """Each target receives its source's operands; a rank that is no target receives zeros.

        pairs ((0,1),(1,2)):   0: [1]   1: [2]   2: [3]   =>   0: [0]   1: [1]   2: [2]

    ``group`` is ``permute_group(pairs)``, with the calling rank added where it is in no pair.
    """

    kind = "collective-permute"
    pairs: tuple[tuple[int, int], ...]

    @staticmethod
    def among(pairs: tuple[tuple[int, int], ...], rank: int) -> CollectivePermute:
        """The permute as ``rank`` sees it. A rank in no pair meets nobody: its group is itself."""
        ranks = permute_group(pairs)
        return CollectivePermute(ranks if rank in ranks else (rank,), pairs)

    def source_of(self, rank: int) -> int | None:
        return next((source for source, target in self.pairs if target == rank), None)

    def targets_of(self, rank: int) -> list[int]:
        return [target for source, target in self.pairs if source == rank]

    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        source = self.source_of(self.group[index])
        for k, result in enumerate(results):
            if source is None:
                result.fill(0)
            else:
                np.copyto(result, combined[self.group.index(source)][k])


@dataclass(frozen=True)
class CollectiveBroadcast(Collective):
    """Every member receives the operands of the group's first rank."""

    kind = "collective-broadcast"

    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        for value, result in zip(combined[0], results, strict=True):
            np.copyto(result, value)


@dataclass(frozen=True)
class RaggedAllToAll(Collective):
    """Rows of every member to every member, at offsets and in amounts that the data says.

    Operands: input, output, input_offsets, send_sizes, output_offsets, recv_sizes; the last four are integers of
    shape [members] or [members, updates]. Member i sends input[input_offsets[j] :][: send_sizes[j]] to member j,
    which holds it at output_offsets[j] (as the *sender* says). Elsewhere the result is ``output``.
    """

    kind = "ragged-all-to-all"

    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        (result,) = results
        np.copyto(result, combined[index][1])
        for source, _, input_offsets, send_sizes, output_offsets, _ in combined:
            moves = (
                table.reshape(len(self.group), -1)[index]
                for table in (input_offsets, output_offsets, send_sizes)
            )
            for start, target, rows in zip(*moves, strict=True):
                result[target : target + rows] = source[start : start + rows]


def permute_group(pairs: tuple[tuple[int, int], ...]) -> Group:
    """The ranks that take part in a permute, ascending."""
    return tuple(sorted({rank for pair in pairs for rank in pair}))


def _reduce_each(members: Members, reduction: ReductionKind) -> list[Array]:
    totals = [np.empty_like(operand) for operand in members[0]]
    for k, total in enumerate(totals):
        reduce_in_order([member[k] for member in members], reduction, total)
    return totals
