"""Collectives, send and recv, infeed and outfeed."""

from __future__ import annotations

from spmd.device import ReplicaGroups
from spmd.hlo.collective_opcodes import (
    COLLECTIVE_DONES,
    MOVING_COLLECTIVES,
    PERMUTES,
    REDUCING_COLLECTIVES,
)
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ChannelAttrs, CollectiveAttrs, CollectivePermuteAttrs, FeedAttrs
from spmd.ops.checks import set_text
from spmd.shape import Shape
from spmd.source_target_pairs import ListedPairs
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter
from spmd.text.lexer import Scanner, quote
from spmd.text.shape_text import ShapeReader
from spmd.text.sharding.replica_groups_text import format_replica_groups, read_replica_groups

_NO_GROUPS = ReplicaGroups()


def _channel(values: AttrValues) -> int | None:
    return values.need_integer("channel_id") if "channel_id" in values else None


def _read_collective(values: AttrValues) -> CollectiveAttrs:
    dims = values.ints("dimensions")
    if len(dims) > 1:
        values.fail(f"{values.opcode} takes one dimension, found {len(dims)}")
    return CollectiveAttrs(
        replica_groups=values.read_known("replica_groups", read_replica_groups, _NO_GROUPS),
        channel_id=_channel(values),
        use_global_device_ids=values.flag("use_global_device_ids"),
        dimension=dims[0] if dims else None,
        constrain_layout=values.flag("constrain_layout"),
        mode=values.word("mode"),
    )


def _read_reducing(values: AttrValues) -> CollectiveAttrs:
    values.callee("to_apply")
    return _read_collective(values)


def _write_collective(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(CollectiveAttrs)
    out.optional("channel_id", attrs.channel_id)
    out.add("replica_groups", format_replica_groups(attrs.replica_groups))
    out.flag("constrain_layout", attrs.constrain_layout)
    if instruction.opcode in REDUCING_COLLECTIVES:
        out.flag("use_global_device_ids", attrs.use_global_device_ids)
        out.optional("mode", attrs.mode)
        if attrs.dimension is not None:
            out.ints("dimensions", (attrs.dimension,))
        out.callee("to_apply", instruction.to_apply)
        return
    if attrs.dimension is not None:
        out.ints("dimensions", (attrs.dimension,))
    out.flag("use_global_device_ids", attrs.use_global_device_ids)
    out.optional("mode", attrs.mode)


def _read_pairs(scanner: Scanner) -> ListedPairs:
    pairs: list[tuple[int, int]] = []
    for _ in scanner.items():
        start = scanner.pos
        pair = scanner.integers()
        if len(pair) != 2:
            scanner.fail(f"expected {{source,target}}, found {len(pair)} numbers", start)
        pairs.append((pair[0], pair[1]))
    return ListedPairs(tuple(pairs))


def _read_lists(scanner: Scanner) -> tuple[tuple[int, ...], ...]:
    return tuple(scanner.integers() for _ in scanner.items())


def _read_permute(values: AttrValues) -> CollectivePermuteAttrs:
    return CollectivePermuteAttrs(
        _read_needed_pairs(values),
        _channel(values),
        values.read("slice_sizes", _read_lists, ()),
        values.verbatim("inplace"),
    )


def _read_needed_pairs(values: AttrValues) -> ListedPairs:
    if "source_target_pairs" not in values:
        values.need("source_target_pairs")
    return values.read_known("source_target_pairs", _read_pairs, ListedPairs())


def _write_permute(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(CollectivePermuteAttrs)
    out.optional("channel_id", attrs.channel_id)
    out.add("source_target_pairs", set_text(map(set_text, attrs.source_target_pairs.expand())))
    if attrs.slice_sizes:
        out.add("slice_sizes", set_text(map(set_text, attrs.slice_sizes)))
    out.verbatim(attrs.extra)


def _read_channel(values: AttrValues) -> ChannelAttrs:
    return ChannelAttrs(_channel(values), values.flag("is_host_transfer"))


def _write_channel(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(ChannelAttrs)
    out.optional("channel_id", attrs.channel_id)
    out.flag("is_host_transfer", attrs.is_host_transfer)


def _read_feed(values: AttrValues) -> FeedAttrs:
    config = values.string("infeed_config") or values.string("outfeed_config")
    shape: Shape | None = values.read("outfeed_shape", ShapeReader().read, None)
    return FeedAttrs(config, shape)


def _write_feed(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(FeedAttrs)
    if attrs.outfeed_shape is not None:
        out.add("outfeed_shape", attrs.outfeed_shape)
    if attrs.config:
        name = "infeed_config" if instruction.opcode is Opcode.INFEED else "outfeed_config"
        out.add(name, quote(attrs.config))


attrs_text(*REDUCING_COLLECTIVES, read=_read_reducing, write=_write_collective)
attrs_text(
    *MOVING_COLLECTIVES,
    read=_read_collective,
    write=_write_collective,
)
attrs_text(
    *PERMUTES,
    read=_read_permute,
    write=_write_permute,
)
attrs_text(
    Opcode.SEND,
    Opcode.SEND_DONE,
    Opcode.RECV,
    Opcode.RECV_DONE,
    read=_read_channel,
    write=_write_channel,
)
attrs_text(*COLLECTIVE_DONES)
attrs_text(Opcode.INFEED, Opcode.OUTFEED, read=_read_feed, write=_write_feed)
