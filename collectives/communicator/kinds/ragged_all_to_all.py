"""ragged-all-to-all: every member sends rows to every member, in amounts that depend on operands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from collectives.communicator.actions.array_actions import (
    ArrayAction,
    Copy,
    Deferred,
    Exchange,
    PackedMessages,
)
from collectives.communicator.actions.device_actions import DeviceActionBuilder, DeviceBuffers
from collectives.communicator.actions.shared_actions import (
    CollectiveAction,
    Ends,
    MoveRows,
    copy_rows,
)
from collectives.communicator.group import Array
from collectives.communicator.kinds.op import Collective, LinkTraffic, Members
from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class RaggedAllToAll(Collective):
    """Every member sends rows to every member, at offsets and in amounts that depend on operands.

    Operands: input, output, input_offsets, send_sizes, output_offsets, recv_sizes; the last four are integers of shape
    [members] or [members, updates]. Member i sends input[input_offsets[j] :][: send_sizes[j]] to member j, which stores
    these rows from output_offsets[j] of the *sender* on. All other rows of the result are those of ``output``.
    """

    kind = "ragged-all-to-all"
    traffic = LinkTraffic(("hierarchical",), each_to_each=True)
    data_dependent = True

    # ---- definition
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

    # ---- cost
    @classmethod
    def exchanged_bytes(cls, first_operand: float, results: float, members: int) -> float:
        """Return the bytes of the input, an upper bound: the amount that is sent depends on the values of operands."""
        return first_operand

    def sent_per_result_byte(self, members: int, devices: int) -> float:
        return 1.0

    # ---- memory that all members reach
    def shared_transfer(self, ends: Ends) -> Iterator[CollectiveAction]:
        """Yield the copy of ``output`` to the result, and the copies of rows for this member from every input."""
        source, output, table = ends.buffers.operands[:3]
        yield from copy_rows(ends.operands[ends.index][1], ends.targets[0], 1, output.nbytes)
        row_bytes = math.prod(source.shape[1:]) * source.itemsize
        entries = table.size // len(ends.operands)
        if not row_bytes or not entries:
            return
        for member in ends.operands:
            input_offsets, send_sizes, output_offsets = (
                address + ends.index * entries * table.itemsize for address in member[2:5]
            )
            yield MoveRows(
                member[0],
                ends.targets[0],
                (input_offsets, send_sizes, output_offsets),
                table.dtype,
                entries,
                row_bytes,
                source.shape[0],
                output.shape[0],
            )

    def unread_overlaps(self) -> list[tuple[int, int]]:
        """Return the pair of ``output`` and the result, which begins as its copy. No other member reads ``output``."""
        return [(1, 0)]

    # ---- messages
    def by_messages(
        self, index: int, operands: Sequence[Array], results: Sequence[Array]
    ) -> Iterator[ArrayAction]:
        """Yield an exchange of tables, since only senders know the target rows, then an exchange of rows by Python."""
        source, output, input_offsets, send_sizes, output_offsets, _ = operands
        (result,) = results
        count = len(self.group)
        own = np.empty((3, count, input_offsets.size // count), np.int64)
        tables = np.empty((count, *own.shape), np.int64)
        for row, table in zip(own, (input_offsets, send_sizes, output_offsets), strict=True):
            yield Copy(table.reshape(row.shape), row)
        packed = PackedMessages(index, count)
        laying = packed.receive([own] * count, list(tables))
        yield from packed.exchange()
        yield from laying
        received: list[Array] = []

        def exchange_rows() -> Exchange | None:
            _check_rows(tables, len(source), len(result))
            sends = [
                np.concatenate([source[start : start + rows] for start, rows, _ in own[:, peer].T])
                for peer in range(count)
            ]
            received[:] = [
                np.empty((int(tables[peer, 1, index].sum()), *source.shape[1:]), source.dtype)
                for peer in range(count)
            ]
            np.copyto(received[index], sends[index])
            rows_of_all = PackedMessages(index, count)
            rows_of_all.swap(sends, received)
            return next(rows_of_all.exchange(), None)

        def lay_rows() -> None:
            np.copyto(result, output)
            for peer, rows_of_peer in enumerate(received):
                taken = 0
                for _, rows, offset in tables[peer, :, index].T:
                    result[offset : offset + rows] = rows_of_peer[taken : taken + rows]
                    taken += rows

        yield Deferred(exchange_rows)
        yield Deferred(lay_rows)

    # ---- NCCL
    def nccl_obstacle(self, dtypes: Sequence[np.dtype[Any]], version: int) -> str | None:
        return "its sizes lie in the data"

    def add_nccl_calls(
        self, builder: DeviceActionBuilder, buffers: DeviceBuffers, version: int
    ) -> None:
        raise RunError(f"{self.kind}: NCCL has no such collective")


def _check_rows(tables: Array, source_rows: int, result_rows: int) -> None:
    """Raise RunError if an entry of ``tables`` [members, 3, members, updates] lies outside of an array.

    ``tables`` holds the offsets and sizes of all members, so that every member raises the same error.
    """
    starts, rows, offsets = tables.swapaxes(0, 1)
    most = np.minimum(source_rows - starts, result_rows - offsets)
    if (np.stack([starts, offsets, rows]) < 0).any() or (rows > most).any():
        raise RunError("ragged-all-to-all: offsets and sizes point outside of an array")
