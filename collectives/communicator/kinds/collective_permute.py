"""collective-permute: each target receives its source's operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from collectives.communicator.actions.array_actions import ArrayAction, Copy, PackedMessages, Zero
from collectives.communicator.actions.device_actions import (
    Block,
    DeviceActionBuilder,
    DeviceBuffers,
    ReceiveCall,
    SendCall,
    copied,
)
from collectives.communicator.actions.device_actions import Zero as DeviceZero
from collectives.communicator.actions.shared_actions import (
    CollectiveAction,
    Ends,
    FillZero,
    RotateBytes,
    copy_rows,
    share_of,
)
from collectives.communicator.actions.shared_buffers import Buffers
from collectives.communicator.group import Array, Group
from collectives.communicator.kinds.op import Collective, LinkTraffic, Members
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class CollectivePermute(Collective):
    """Each target receives its source's operands; a rank that is no target receives zeros.

        pairs ((0,1),(1,2)):   0: [1]   1: [2]   2: [3]   =>   0: [0]   1: [1]   2: [2]

    ``group`` is ``permute_group(pairs)`` for a rank in one of the pairs, and the rank alone for any other rank.
    """

    kind = "collective-permute"
    traffic = LinkTraffic(sends_full_message=True)
    pairs: tuple[tuple[int, int], ...]

    @staticmethod
    def among(pairs: tuple[tuple[int, int], ...], rank: int) -> CollectivePermute:
        """Return the permute as ``rank`` sees it. The group of a rank in no pair is the rank alone."""
        ranks = permute_group(pairs)
        return CollectivePermute(ranks if rank in ranks else (rank,), pairs)

    # ---- definition
    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        source = self.source_of(self.group[index])
        for k, result in enumerate(results):
            if source is None:
                result.fill(0)
            else:
                np.copyto(result, combined[self.group.index(source)][k])

    # ---- facts
    def source_of(self, rank: int) -> int | None:
        """Return the rank from which ``rank`` receives; None if it is no target."""
        return next((source for source, target in self.pairs if target == rank), None)

    def targets_of(self, rank: int) -> list[int]:
        """Return the ranks that receive the operands of ``rank``."""
        return [target for source, target in self.pairs if source == rank]

    def of_rank(self, rank: int, groups: Sequence[Group]) -> Collective:
        return self.among(self.pairs, rank)

    def reads(self, reader: int, source: int) -> bool:
        return self.source_of(self.group[reader]) == self.group[source]

    # ---- cost
    def sent_per_result_byte(self, members: int, devices: int) -> float:
        return len(self.pairs) / devices

    # ---- memory that all members reach
    def shared_transfer(self, ends: Ends) -> Iterator[CollectiveAction]:
        """Yield the copies from the source, or zeros if there is no source.

        If results are the operands' memory, yield an in-place permute: each member moves one part of the bytes of all
        members of its route.
        """
        if ends.results and self.overwrites_operands(ends.buffers):
            yield from self._rotate(ends)
            return
        source = self.source_of(self.group[ends.index])
        for k, result in enumerate(ends.buffers.results):
            if source is not None:
                address = ends.operands[self.group.index(source)][k]
                yield from copy_rows(address, ends.targets[k], 1, result.nbytes)
            elif result.nbytes:
                yield FillZero(ends.targets[k], result.nbytes)

    def overwrites_operands(self, buffers: Buffers) -> bool:
        """Return whether a permute in place is possible: results are the operands' memory, and pairs form routes."""
        return buffers.are_in_place and has_routes(self)

    def awaited_in_place(self, index: int, buffers: Buffers) -> tuple[list[int], list[int]]:
        if not self.overwrites_operands(buffers):
            return super().awaited_in_place(index, buffers)
        others = [i for i in self._route(index)[0] if i != index]
        return others, others

    def _rotate(self, ends: Ends) -> Iterator[CollectiveAction]:
        """Yield the in-place permute of member ``ends.index``: its part of the bytes of all members of the route."""
        members, is_cycle = self._route(ends.index)
        for k, result in enumerate(ends.buffers.results):
            first, end = share_of(result.nbytes, 1, members.index(ends.index), len(members))
            if first < end and len(members) > 1:
                addresses = tuple(ends.results[i][k] + first for i in members)
                yield RotateBytes(addresses, end - first, is_cycle)

    def _route(self, index: int) -> tuple[list[int], bool]:
        """Return the members on the route of member ``index``, and whether the last one sends to the first."""
        route = route_through(self, self.group[index])
        return [self.group.index(rank) for rank in route.ranks], route.is_cycle

    # ---- messages
    def by_messages(
        self, index: int, operands: Sequence[Array], results: Sequence[Array]
    ) -> Iterator[ArrayAction]:
        group, rank = self.group, self.group[index]
        source = self.source_of(rank)
        targets = [group.index(target) for target in self.targets_of(rank) if target != rank]
        packed = PackedMessages(index, len(group))
        laying: list[ArrayAction] = []
        for operand, result in zip(operands, results, strict=True):
            packed.sends += [(target, operand) for target in targets]
            if source is None:
                laying.append(Zero(result))
            elif source == rank:
                laying.append(Copy(operand, result))
            else:
                laying += packed.receive_from(group.index(source), result, operands)
        yield from packed.exchange()
        yield from laying

    # ---- NCCL
    @property
    def copies_alone(self) -> bool:
        """Return whether the only rank of the group sends to itself; if it does not, it receives zeros."""
        (rank,) = self.group
        return self.source_of(rank) == rank

    def add_nccl_calls(
        self, builder: DeviceActionBuilder, buffers: DeviceBuffers, version: int
    ) -> None:
        group, rank = self.group, self.group[builder.index]
        source, targets = self.source_of(rank), self.targets_of(rank)
        is_over = buffers.are_exchanged_in_place
        for operand, result in zip(buffers.operands, buffers.results, strict=True):
            if operand.nbytes == 0:
                continue
            block = Block.of_array(operand)
            stays = source == rank and operand.pointer == result.pointer
            sent = builder.packed(block, always=is_over and bool(targets) and not stays)
            for target in targets:
                if target != rank:
                    builder.calls.append(SendCall(sent, operand.nbytes, group.index(target)))
            if source is None:
                builder.after.append(DeviceZero(result.pointer, result.nbytes))
            elif source == rank:
                builder.after += copied(block.at(sent), Block.of_array(result))
            else:
                member = group.index(source)
                builder.calls.append(ReceiveCall(result.pointer, result.nbytes, member))


def permute_group(pairs: tuple[tuple[int, int], ...]) -> Group:
    """Return the ranks that are in some pair, ascending."""
    return tuple(sorted({rank for pair in pairs for rank in pair}))


@dataclass(frozen=True)
class Route:
    """Ranks of which each sends to the next one. If ``is_cycle``, the last rank sends to the first.

    Otherwise the first rank receives zeros.

    pairs ((0,1),(1,2),(3,4),(4,3))   =>   (0,1,2), no cycle, and (3,4), a cycle
    """

    ranks: Group
    is_cycle: bool


def has_routes(collective: CollectivePermute) -> bool:
    """Return whether no rank sends to two ranks. Every rank then lies on exactly one route."""
    sources = [source for source, _ in collective.pairs]
    return len(set(sources)) == len(sources)


def route_through(collective: CollectivePermute, rank: int) -> Route:
    """Return the route of ``rank``, which is equal on all of its ranks. ``has_routes(collective)`` must be true."""
    before = {target: source for source, target in collective.pairs}
    after = dict(collective.pairs)
    first = rank
    while first in before and before[first] != rank:
        first = before[first]
    ranks = [first]
    while after.get(ranks[-1], first) != first:
        ranks.append(after[ranks[-1]])
    start = ranks.index(min(ranks)) if first in before else 0
    return Route((*ranks[start:], *ranks[:start]), is_cycle=first in before)
