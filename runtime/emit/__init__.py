"""Emission of thunks from HLO instructions, one file for each family of opcodes.

``runtime.lowering.LOWERINGS`` imports a file when an opcode of its family is first looked up.
"""

from runtime.lowering import LOWERINGS
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.opcode import Opcode
from spmd.ops.elementwise_ops import ELEMENTWISE

LOWERINGS.import_at_need(
    {
        "runtime.emit.all_to_all": (Opcode.ALL_TO_ALL,),
        "runtime.emit.collective": (
            Opcode.ASYNC_START,
            *(opcode for opcode in KIND if opcode is not Opcode.ALL_TO_ALL),
        ),
        "runtime.emit.convolution.convolution": (Opcode.CONVOLUTION,),
        "runtime.emit.custom_call": (Opcode.CUSTOM_CALL,),
        "runtime.emit.device_id": (
            Opcode.PARTITION_ID,
            Opcode.REPLICA_ID,
        ),
        "runtime.emit.dot": (Opcode.DOT,),
        "runtime.emit.elementwise": ELEMENTWISE,
        "runtime.emit.feed": (
            Opcode.INFEED,
            Opcode.OUTFEED,
        ),
        "runtime.emit.fft": (Opcode.FFT,),
        "runtime.emit.fusion": (Opcode.FUSION,),
        "runtime.emit.gather_scatter": (
            Opcode.GATHER,
            Opcode.SCATTER,
        ),
        "runtime.emit.linear_algebra": (
            Opcode.CHOLESKY,
            Opcode.TRIANGULAR_SOLVE,
        ),
        "runtime.emit.ragged_dot": (Opcode.RAGGED_DOT,),
        "runtime.emit.reduce": (Opcode.REDUCE,),
        "runtime.emit.reduce_window": (
            Opcode.REDUCE_WINDOW,
            Opcode.SELECT_AND_SCATTER,
        ),
        "runtime.emit.reference": (
            Opcode.BATCH_NORM_GRAD,
            Opcode.BATCH_NORM_INFERENCE,
            Opcode.BATCH_NORM_TRAINING,
            Opcode.BITCAST_CONVERT,
            Opcode.GET_DIMENSION_SIZE,
            Opcode.MAP,
            Opcode.SCALED_DOT,
        ),
        "runtime.emit.reshape": (
            Opcode.BITCAST,
            Opcode.RESHAPE,
        ),
        "runtime.emit.rng": (Opcode.RNG_BIT_GENERATOR,),
        "runtime.emit.slicing": (
            Opcode.CONCATENATE,
            Opcode.DYNAMIC_SLICE,
            Opcode.DYNAMIC_UPDATE_SLICE,
            Opcode.PAD,
        ),
        "runtime.emit.sort": (
            Opcode.SORT,
            Opcode.TOPK,
        ),
    }
)
