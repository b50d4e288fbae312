"""Op definitions. Importing this package registers every opcode; it has the only list of families."""

from spmd.ops import (
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
from spmd.ops.inference import check_instruction, infer_shape
from spmd.ops.opdef import OPS, OpCost, OpDef, definition

FAMILIES = (
    leaf,
    elementwise,
    dot,
    convolution,
    reduce,
    reshape,
    slicing,
    gather_scatter,
    sort,
    rng,
    linalg,
    tuple,
    control_flow,
    collective,
    custom_call,
)

__all__ = ["FAMILIES", "OPS", "OpCost", "OpDef", "check_instruction", "definition", "infer_shape"]
