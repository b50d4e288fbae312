"""Data that a rank of a node sends its peers about the collectives that it has bound: a digest, and array offsets.

The offset of an array may differ from rank to rank: an operand of an all-gather may lie in its result as this rank's
own part, and other collectives may read or write it there. So members exchange offsets, and compare all else.
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

_HEADER = struct.Struct("<qq")
_RECORD = struct.Struct("<16sqq")
_OFFSET = struct.Struct("<q")


@dataclass(frozen=True)
class WindowOffset:
    """Position of an array in shared memory: ``first`` bytes behind the start of this rank's segment of ``window``."""

    window: SharedWindow
    first: int


WindowOffsets: TypeAlias = Sequence[WindowOffset | None]
"""None for an array in no window, and for an empty one."""


class Protocol(Enum):
    """Way in which the members of a group reach each other's operands."""

    ALONE = "alone"
    SLOTS = "slots"
    IN_PLACE = "in place"
    MESSAGES = "messages"


@dataclass(frozen=True)
class Binding:
    """One bound collective as ``connect`` sees it."""

    name: str
    group: Group
    digest: bytes
    shared: NativeCollective | None = None
    #: Bytes of one of its two slots; 0 where it has none.
    slot_bytes: int = 0
    #: Where it works in place.
    operands: WindowOffsets = ()
    results: WindowOffsets = ()

    @property
    def control_bytes(self) -> int:
        """The counter's line, and the slots."""
        return MEMORY_ALIGNMENT + 2 * self.slot_bytes if self.shared else 0


@dataclass(frozen=True)
class BoundRecord:
    """One binding as the other members of its group receive it.

    ``control``: offset in bytes of its counter in the rank's control memory. ``offsets``: those of its operands and
    results in their windows, 0 for an array in no window.
    """

    digest: bytes
    control: int
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class BoundRecords:
    """All bindings of one rank in their order, and ``control_bytes``: the size of the control memory they need."""

    control_bytes: int
    records: tuple[BoundRecord, ...]

    @staticmethod
    def of(bindings: Sequence[Binding]) -> BoundRecords:
        """Lay out the control memory of ``bindings``, one behind the other."""
        controls = [0, *itertools.accumulate(binding.control_bytes for binding in bindings)]
        records = tuple(
            BoundRecord(binding.digest, control, _offsets(binding))
            for binding, control in zip(bindings, controls, strict=False)
        )
        return BoundRecords(controls[-1], records)

    def encode(self) -> bytes:
        """Return a header, a fixed-size record for each binding, and the offsets of all of them."""
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
        """Read what ``encode`` of another rank wrote."""
        control_bytes, count = _HEADER.unpack_from(data)
        end = _HEADER.size + count * _RECORD.size
        offsets = (offset for (offset,) in _OFFSET.iter_unpack(data[end:]))
        records = tuple(
            BoundRecord(digest, control, tuple(itertools.islice(offsets, arrays)))
            for digest, control, arrays in _RECORD.iter_unpack(data[_HEADER.size : end])
        )
        return BoundRecords(control_bytes, records)


def _offsets(binding: Binding) -> tuple[int, ...]:
    return tuple(entry.first if entry else 0 for entry in (*binding.operands, *binding.results))


def binding_digest(
    protocol: Protocol,
    collective: Collective,
    index: int,
    name: str,
    buffers: Buffers,
    window_offsets: tuple[WindowOffsets, WindowOffsets],
) -> bytes:
    """Return a digest that is equal for two members only if they carry the collective out by the same actions.

    It covers the windows in which arrays lie and how results overlap operands, but offsets only of results that members
    hold together. ``index``: of this rank in the group.
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
