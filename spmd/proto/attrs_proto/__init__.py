"""Attributes in protos, one file per op family; importing this package fills ``ATTRS_PROTO``."""

from spmd.proto.attrs_proto import (
    async_ops,
    collective,
    control_flow,
    convolution,
    custom_call,
    dot,
    elementwise,
    gather_scatter,
    leaf,
    linalg,
    reduce,
    reshape,
    rng,
    slicing,
    sort,
    tuple,  # noqa: A004 - the family's stem
)
from spmd.proto.attrs_proto.registry import ATTRS_PROTO, AttrsProto, ProtoValues

__all__ = [
    "ATTRS_PROTO",
    "AttrsProto",
    "ProtoValues",
    "async_ops",
    "collective",
    "control_flow",
    "convolution",
    "custom_call",
    "dot",
    "elementwise",
    "gather_scatter",
    "leaf",
    "linalg",
    "reduce",
    "reshape",
    "rng",
    "slicing",
    "sort",
    "tuple",
]
