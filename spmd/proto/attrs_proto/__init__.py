"""Attributes in protos, one file per op family: ``ATTRS_PROTO`` imports those of a module's opcodes."""

from spmd.hlo.collective_opcodes import COLLECTIVE_DONES, COLLECTIVES
from spmd.hlo.opcode import Opcode
from spmd.ops.elementwise_ops import ELEMENTWISE
from spmd.proto.attrs_proto.registry import ATTRS_PROTO, AttrsProto, ProtoValues

__all__ = ["ATTRS_PROTO", "AttrsProto", "ProtoValues"]

ATTRS_PROTO.import_at_need(
    {
        "spmd.proto.attrs_proto.async_ops": (
            Opcode.ASYNC_DONE,
            Opcode.ASYNC_START,
            Opcode.ASYNC_UPDATE,
            Opcode.COPY_DONE,
            Opcode.COPY_START,
        ),
        "spmd.proto.attrs_proto.collective": (
            *COLLECTIVES,
            *COLLECTIVE_DONES,
            Opcode.INFEED,
            Opcode.OUTFEED,
            Opcode.RECV,
            Opcode.RECV_DONE,
            Opcode.SEND,
            Opcode.SEND_DONE,
        ),
        "spmd.proto.attrs_proto.control_flow": (
            Opcode.ADD_DEPENDENCY,
            Opcode.AFTER_ALL,
            Opcode.CALL,
            Opcode.CONDITIONAL,
            Opcode.DOMAIN,
            Opcode.FUSION,
            Opcode.WHILE,
        ),
        "spmd.proto.attrs_proto.convolution": (Opcode.CONVOLUTION,),
        "spmd.proto.attrs_proto.custom_call": (Opcode.CUSTOM_CALL,),
        "spmd.proto.attrs_proto.dot": (
            Opcode.DOT,
            Opcode.RAGGED_DOT,
            Opcode.SCALED_DOT,
        ),
        "spmd.proto.attrs_proto.elementwise": (*ELEMENTWISE, Opcode.BITCAST_CONVERT, Opcode.COPY),
        "spmd.proto.attrs_proto.gather_scatter": (
            Opcode.GATHER,
            Opcode.SCATTER,
        ),
        "spmd.proto.attrs_proto.leaf": (
            Opcode.CONSTANT,
            Opcode.IOTA,
            Opcode.PARAMETER,
            Opcode.PARTITION_ID,
            Opcode.REPLICA_ID,
        ),
        "spmd.proto.attrs_proto.linalg": (
            Opcode.CHOLESKY,
            Opcode.FFT,
            Opcode.TRIANGULAR_SOLVE,
        ),
        "spmd.proto.attrs_proto.reduce": (
            Opcode.BATCH_NORM_GRAD,
            Opcode.BATCH_NORM_INFERENCE,
            Opcode.BATCH_NORM_TRAINING,
            Opcode.MAP,
            Opcode.REDUCE,
            Opcode.REDUCE_WINDOW,
            Opcode.SCAN,
            Opcode.SELECT_AND_SCATTER,
        ),
        "spmd.proto.attrs_proto.reshape": (
            Opcode.BITCAST,
            Opcode.BROADCAST,
            Opcode.CONCATENATE,
            Opcode.DYNAMIC_RESHAPE,
            Opcode.GET_DIMENSION_SIZE,
            Opcode.RESHAPE,
            Opcode.REVERSE,
            Opcode.SET_DIMENSION_SIZE,
            Opcode.TRANSPOSE,
        ),
        "spmd.proto.attrs_proto.rng": (
            Opcode.RNG,
            Opcode.RNG_BIT_GENERATOR,
            Opcode.RNG_GET_AND_UPDATE_STATE,
        ),
        "spmd.proto.attrs_proto.slicing": (
            Opcode.DYNAMIC_SLICE,
            Opcode.DYNAMIC_UPDATE_SLICE,
            Opcode.PAD,
            Opcode.SLICE,
        ),
        "spmd.proto.attrs_proto.sort": (
            Opcode.SORT,
            Opcode.TOPK,
        ),
        "spmd.proto.attrs_proto.tuple": (
            Opcode.GET_TUPLE_ELEMENT,
            Opcode.OPT_BARRIER,
            Opcode.TUPLE,
        ),
    }
)
