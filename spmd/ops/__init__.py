"""Op definitions, one file per family: ``OPS`` imports those of a module's opcodes. This table has every opcode."""

from spmd.hlo.collective_opcodes import COLLECTIVE_DONES, COLLECTIVES
from spmd.hlo.opcode import Opcode
from spmd.ops.elementwise_ops import ELEMENTWISE
from spmd.ops.inference import check_instruction, infer_shape
from spmd.ops.opdef import OPS, OpCost, OpDef, definition

__all__ = ["OPS", "OpCost", "OpDef", "check_instruction", "definition", "infer_shape"]

OPS.import_at_need(
    {
        "spmd.ops.collective": (
            *COLLECTIVES,
            *COLLECTIVE_DONES,
            Opcode.RECV,
            Opcode.RECV_DONE,
            Opcode.SEND,
            Opcode.SEND_DONE,
        ),
        "spmd.ops.control_flow": (
            Opcode.ASYNC_DONE,
            Opcode.ASYNC_START,
            Opcode.ASYNC_UPDATE,
            Opcode.CALL,
            Opcode.CONDITIONAL,
            Opcode.FUSION,
            Opcode.WHILE,
        ),
        "spmd.ops.convolution": (Opcode.CONVOLUTION,),
        "spmd.ops.custom_call": (Opcode.CUSTOM_CALL,),
        "spmd.ops.dot": (
            Opcode.DOT,
            Opcode.RAGGED_DOT,
            Opcode.SCALED_DOT,
        ),
        "spmd.ops.elementwise": ELEMENTWISE,
        "spmd.ops.gather_scatter": (
            Opcode.GATHER,
            Opcode.SCATTER,
        ),
        "spmd.ops.leaf": (
            Opcode.CONSTANT,
            Opcode.INFEED,
            Opcode.IOTA,
            Opcode.OUTFEED,
            Opcode.PARAMETER,
            Opcode.PARTITION_ID,
            Opcode.REPLICA_ID,
        ),
        "spmd.ops.linalg": (
            Opcode.CHOLESKY,
            Opcode.FFT,
            Opcode.TRIANGULAR_SOLVE,
        ),
        "spmd.ops.reduce": (
            Opcode.BATCH_NORM_GRAD,
            Opcode.BATCH_NORM_INFERENCE,
            Opcode.BATCH_NORM_TRAINING,
            Opcode.MAP,
            Opcode.REDUCE,
            Opcode.REDUCE_WINDOW,
            Opcode.SCAN,
            Opcode.SELECT_AND_SCATTER,
        ),
        "spmd.ops.reshape": (
            Opcode.BITCAST,
            Opcode.BITCAST_CONVERT,
            Opcode.BROADCAST,
            Opcode.COPY,
            Opcode.COPY_DONE,
            Opcode.COPY_START,
            Opcode.DYNAMIC_RESHAPE,
            Opcode.GET_DIMENSION_SIZE,
            Opcode.RESHAPE,
            Opcode.REVERSE,
            Opcode.SET_DIMENSION_SIZE,
            Opcode.TRANSPOSE,
        ),
        "spmd.ops.rng": (
            Opcode.RNG,
            Opcode.RNG_BIT_GENERATOR,
            Opcode.RNG_GET_AND_UPDATE_STATE,
        ),
        "spmd.ops.slicing": (
            Opcode.CONCATENATE,
            Opcode.DYNAMIC_SLICE,
            Opcode.DYNAMIC_UPDATE_SLICE,
            Opcode.PAD,
            Opcode.SLICE,
        ),
        "spmd.ops.sort": (
            Opcode.SORT,
            Opcode.TOPK,
        ),
        "spmd.ops.tuple": (
            Opcode.ADD_DEPENDENCY,
            Opcode.AFTER_ALL,
            Opcode.DOMAIN,
            Opcode.GET_TUPLE_ELEMENT,
            Opcode.OPT_BARRIER,
            Opcode.TUPLE,
        ),
    }
)
