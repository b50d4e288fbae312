"""Bytes that collectives put on the wire, with bandwidth-optimal algorithms."""

from __future__ import annotations

from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.ops.opdef import SizeOf, byte_size
from spmd.shape import subshape


def result_bytes(collective: HloInstruction, size_of: SizeOf = byte_size) -> int:
    """Return the bytes of the result on one device; for an asynchronous start, those of its done."""
    if collective.opcode is Opcode.COPY_START:
        return size_of(subshape(collective.shape, (0,)))
    if collective.opcode in (Opcode.ALL_GATHER_START, Opcode.COLLECTIVE_PERMUTE_START):
        return size_of(subshape(collective.shape, (1,)))
    return size_of(collective.shape)


def wire_weight(collective: HloInstruction, devices: int) -> float:
    """Return the bytes that a device sends per byte of its result; a permute is averaged over all ``devices``."""
    attrs = collective.attrs
    if isinstance(attrs, CollectivePermuteAttrs):
        return attrs.source_target_pairs.moved / devices
    groups = collective.attrs_as(CollectiveAttrs).replica_groups
    n = devices if groups.is_all else groups.group_size(devices)
    kind = KIND[collective.opcode]
    if kind == "all-reduce":
        return 2 * (n - 1) / n
    if kind in ("all-gather", "all-to-all"):
        return (n - 1) / n
    if kind == "reduce-scatter":
        return n - 1.0
    return 1.0
