"""Records that the ranks of a node exchange about the collectives that they have bound: digests and array offsets.

The members of a group require equal digests. Offsets of arrays are exchanged but not compared, because they may differ
from rank to rank: an operand of an all-gather, for example, may be this rank's own tile of the result.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

from collectives.communicator.actions.shared_buffers import MEMORY_ALIGNMENT, Buffers
from collectives.communicator.group import Group
from collectives.communicator.kinds.op import Collective
from collectives.communicator.native_collective import NativeCollective
from collectives.communicator.node.shared_protocols import own_tiles
from collectives.communicator.node.shared_window import SharedWindow
from spmd.lazy_dataclass import dataclass

#: Bytes of the control memory and number of records; digest, offset of the counter and number of arrays; an offset.
_HEADER = struct.Struct("<qq")
_RECORD = struct.Struct("<16sqq")
_OFFSET = struct.Struct("<q")


@dataclass(frozen=True)
class WindowOffset:
    """Offset of an array in shared memory: ``first`` bytes after the start of this rank's segment of ``window``."""

    window: SharedWindow
    first: int


WindowOffsets: TypeAlias = Sequence[WindowOffset | None]
"""Offsets of arrays; None for an array in no window and for an empty array."""


class Protocol(Enum):
    """Protocol by which the members of a group reach each other's operands.

    ``ALONE``: the group has one member. ``SLOTS`` and ``IN_PLACE``: the protocols of ``shared_protocols``.
    ``MESSAGES``: the operands are sent as messages.
    """

    ALONE = "alone"
    SLOTS = "slots"
    IN_PLACE = "in place"
    MESSAGES = "messages"


@dataclass(frozen=True)
class Binding:
    """One bound collective, as ``NodeMemory.connect`` needs it.

    ``shared`` is the collective that runs over shared memory; None if messages carry it. ``operands`` and ``results``
    are the offsets of the arrays that lie in a window: of all arrays if the protocol is ``IN_PLACE``, of shared results
    if it is ``SLOTS``. Otherwise the sequences are empty.
    """

    name: str
    group: Group
    digest: bytes
    shared: NativeCollective | None = None
    #: Size in bytes of each of the two slots; 0 if the protocol uses no slots.
    slot_bytes: int = 0
    operands: WindowOffsets = ()
    results: WindowOffsets = ()

    @property
    def control_bytes(self) -> int:
        """Return the size in bytes of the counter's cache line and two slots; 0 if messages carry the collective."""
        return MEMORY_ALIGNMENT + 2 * self.slot_bytes if self.shared else 0


@dataclass(frozen=True)
class BoundRecord:
    """One binding as the other members of its group receive it.

    ``control`` is the offset in bytes of the binding's counter in the sender's control memory. ``offsets`` are the
    offsets in bytes of its operands, then of its results, in the sender's segments; 0 for an array in no window.
    """

    digest: bytes
    control: int
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class BoundRecords:
    """The records of all bindings of one rank, in the order in which they were bound.

    ``control_bytes`` is the size in bytes of the control memory that the bindings need together.
    """

    control_bytes: int
    records: tuple[BoundRecord, ...]

    @staticmethod
    def of(bindings: Sequence[Binding]) -> BoundRecords:
        """Return the records of ``bindings``, whose control memory is laid out consecutively in the given order."""
        controls = [0, *itertools.accumulate(binding.control_bytes for binding in bindings)]
        records = tuple(
            BoundRecord(binding.digest, control, _offsets(binding))
            for binding, control in zip(bindings, controls, strict=False)
        )
        return BoundRecords(controls[-1], records)

    def encode(self) -> bytes:
        """Serialize the records: a header, one record of fixed size per binding, then the offsets of all bindings."""
        offsets = [offset for record in self.records for offset in record.offsets]
        return b"".join(
            [
                _HEADER.pack(self.control_bytes, len(self.records)),
                *(_RECORD.pack(r.digest, r.control, len(r.offsets)) for r in self.records),
                *map(_OFFSET.pack, offsets),
            ]
        )

    @staticmethod
    def decode(data: bytes) -> BoundRecords:
        """Deserialize records that ``encode`` wrote, usually on another rank."""
        control_bytes, count = _HEADER.unpack_from(data)
        end = _HEADER.size + count * _RECORD.size
        offsets = (offset for (offset,) in _OFFSET.iter_unpack(data[end:]))
        records = tuple(
            BoundRecord(digest, control, tuple(itertools.islice(offsets, arrays)))
            for digest, control, arrays in _RECORD.iter_unpack(data[_HEADER.size : end])
        )
        return BoundRecords(control_bytes, records)


def _offsets(binding: Binding) -> tuple[int, ...]:
    """Return the offsets of the operands, then of the results; 0 for an array in no window."""
    return tuple(entry.first if entry else 0 for entry in (*binding.operands, *binding.results))


def binding_digest(
    protocol: Protocol,
    collective: Collective,
    index: int,
    name: str,
    buffers: Buffers,
    window_offsets: tuple[WindowOffsets, WindowOffsets],
) -> bytes:
    """Return a 16-byte digest of a binding. Members whose digests are equal run the collective by matching actions.

    The digest covers the collective, its ``name`` and ``protocol``, the shapes and types of the arrays, the windows in
    which they lie and the pairs of operands and results that overlap. Offsets are included only for results in memory
    that several members share, since all of these must use one offset. ``index`` is this rank's index in the group.
    ``window_offsets`` are those of the operands and those of the results.
    """
    arrays = [(array.shape, array.dtype.name) for array in (*buffers.operands, *buffers.results)]
    windows = [entry and entry.window.number for entry in (*window_offsets[0], *window_offsets[1])]
    shared_results = [
        p.first for p in window_offsets[1] if p and p.window.is_shared_in(collective.group)
    ]
    own = own_tiles(collective, index, buffers)
    overlaps = [tuple(o) for o in buffers.overlaps if o.operand != o.result or o.result not in own]
    text = repr((protocol, collective, name, arrays, windows, shared_results, own, overlaps))
    return hashlib.sha256(text.encode()).digest()[:16]
