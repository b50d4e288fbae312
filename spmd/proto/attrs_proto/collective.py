"""Collectives, send and recv, infeed and outfeed."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.hlo.collective_opcodes import (
    COLLECTIVE_DONES,
    MOVING_COLLECTIVES,
    PERMUTES,
    REDUCING_COLLECTIVES,
)
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ChannelAttrs, CollectiveAttrs, CollectivePermuteAttrs, FeedAttrs
from spmd.proto.attrs_proto.registry import ProtoValues, attrs_proto
from spmd.proto.attrs_proto.slice_sizes import split_slice_sizes
from spmd.proto.groups_proto import read_replica_groups, write_replica_groups
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.proto.schema.xla_data import SourceTargetProto
from spmd.proto.shape_proto import read_shape, write_shape
from spmd.source_target_pairs import ListedPairs


def _channel(proto: HloInstructionProto) -> int | None:
    """Return the channel id. Numbers below 1 mean none; all-reduces of older versions have another field."""
    number = proto.channel_id if proto.channel_id > 0 else proto.all_reduce_id
    return number if number > 0 else None


def _read_collective(values: ProtoValues) -> CollectiveAttrs:
    proto = values.proto
    if len(proto.dimensions) > 1:
        raise HloParseError(f"{proto.opcode} takes one dimension, found {len(proto.dimensions)}")
    return CollectiveAttrs(
        replica_groups=read_replica_groups(proto, values.implied),
        channel_id=_channel(proto),
        use_global_device_ids=proto.use_global_device_ids,
        dimension=proto.dimensions[0] if proto.dimensions else None,
        constrain_layout=proto.constrain_layout,
    )


def _write_collective(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    """Write the attributes. ``mode`` has no field: it follows from the channel and the kind of ids."""
    attrs = instruction.attrs_as(CollectiveAttrs)
    write_replica_groups(proto, attrs.replica_groups)
    proto.channel_id = attrs.channel_id or 0
    proto.use_global_device_ids = attrs.use_global_device_ids
    proto.dimensions = () if attrs.dimension is None else (attrs.dimension,)
    proto.constrain_layout = attrs.constrain_layout


def _read_permute(values: ProtoValues) -> CollectivePermuteAttrs:
    proto = values.proto
    return CollectivePermuteAttrs(
        ListedPairs(tuple((pair.source, pair.target) for pair in proto.source_target_pairs)),
        _channel(proto),
        split_slice_sizes(proto.dynamic_slice_sizes, values.operands),
    )


def _write_permute(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(CollectivePermuteAttrs)
    pairs: list[SourceTargetProto] = []
    for source, target in attrs.source_target_pairs:
        pair = SourceTargetProto()
        pair.source, pair.target = source, target
        pairs.append(pair)
    proto.source_target_pairs = pairs
    proto.channel_id = attrs.channel_id or 0
    proto.dynamic_slice_sizes = tuple(size for sizes in attrs.slice_sizes for size in sizes)


def _write_channel(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(ChannelAttrs)
    proto.channel_id = attrs.channel_id or 0
    proto.is_host_transfer = attrs.is_host_transfer


def _read_infeed(values: ProtoValues) -> FeedAttrs:
    return FeedAttrs(values.proto.infeed_config.decode("utf-8", "surrogateescape"))


def _write_infeed(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    proto.infeed_config = _config(instruction)


def _read_outfeed(values: ProtoValues) -> FeedAttrs:
    proto = values.proto
    shape = None if proto.outfeed_shape is None else read_shape(proto.outfeed_shape)
    return FeedAttrs(proto.outfeed_config.decode("utf-8", "surrogateescape"), shape)


def _write_outfeed(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(FeedAttrs)
    proto.outfeed_config = _config(instruction)
    # XLA's reader requires the shape. A text without one means that of the operand.
    shape = attrs.outfeed_shape or instruction.operand(0).shape
    proto.outfeed_shape = write_shape(shape)


def _config(instruction: HloInstruction) -> bytes:
    return instruction.attrs_as(FeedAttrs).config.encode("utf-8", "surrogateescape")


attrs_proto(
    *REDUCING_COLLECTIVES,
    read=_read_collective,
    write=_write_collective,
    callees=1,
)
attrs_proto(
    *MOVING_COLLECTIVES,
    read=_read_collective,
    write=_write_collective,
)
attrs_proto(
    *PERMUTES,
    read=_read_permute,
    write=_write_permute,
)
attrs_proto(
    Opcode.SEND,
    Opcode.SEND_DONE,
    Opcode.RECV,
    Opcode.RECV_DONE,
    read=lambda values: ChannelAttrs(_channel(values.proto), values.proto.is_host_transfer),
    write=_write_channel,
)
attrs_proto(*COLLECTIVE_DONES)
attrs_proto(Opcode.INFEED, read=_read_infeed, write=_write_infeed)
attrs_proto(Opcode.OUTFEED, read=_read_outfeed, write=_write_outfeed)
