"""Reducer computations: recognition of known ones, construction, and neutral elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from spmd.device import ReductionKind
from spmd.errors import ShapeError
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CustomCallAttrs, ParameterAttrs
from spmd.shape import ArrayShape, PrimitiveType

#: Operations that combine two values of a reduction.
OPERATION = {
    ReductionKind.SUM: Opcode.ADD,
    ReductionKind.PRODUCT: Opcode.MULTIPLY,
    ReductionKind.MIN: Opcode.MINIMUM,
    ReductionKind.MAX: Opcode.MAXIMUM,
    ReductionKind.AND: Opcode.AND,
    ReductionKind.OR: Opcode.OR,
    ReductionKind.XOR: Opcode.XOR,
}
_KIND = {opcode: kind for kind, opcode in OPERATION.items()}

#: Kinds on pred, where arithmetic means logic.
_LOGICAL = {
    ReductionKind.SUM: ReductionKind.OR,
    ReductionKind.MAX: ReductionKind.OR,
    ReductionKind.PRODUCT: ReductionKind.AND,
    ReductionKind.MIN: ReductionKind.AND,
}


def reduction_kind(computation: HloComputation) -> ReductionKind | None:
    """Return the reduction that a reducer of two scalars computes; None if it is no plain reduction."""
    root = through_annotations(computation.root)
    kind = operation_kind(root)
    if kind is None or computation.num_parameters != 2:
        return None
    operands = [through_annotations(x) for x in root.operands]
    if {x.opcode for x in operands} != {Opcode.PARAMETER} or operands[0] is operands[1]:
        return None
    return kind


def operation_kind(x: HloInstruction) -> ReductionKind | None:
    """Return the kind of reduction whose combination is ``x``; None for other operations."""
    kind = _KIND.get(x.opcode)
    return None if kind is None else on_type(kind, x.array_shape.element_type)


def through_annotations(instruction: HloInstruction) -> HloInstruction:
    """Return the value behind copies and ``Sharding`` calls (JAX writes those even into reducers)."""
    while instruction.opcode is Opcode.COPY or _is_sharding_call(instruction):
        instruction = instruction.operand(0)
    return instruction


def _is_sharding_call(instruction: HloInstruction) -> bool:
    return isinstance(instruction.attrs, CustomCallAttrs) and instruction.attrs.target == "Sharding"


def build_reducer(
    module: HloModule, kind: ReductionKind, element_type: PrimitiveType
) -> HloComputation:
    """Make a new computation of two scalars, placed before all its future callers (M1)."""
    kind = on_type(kind, element_type)
    computation = module.new_computation(f"{kind.value}_{element_type}")
    module.computations.insert(0, module.computations.pop())
    scalar = ArrayShape(element_type, ())
    x = computation.create(Opcode.PARAMETER, scalar, attrs=ParameterAttrs(0), name="x")
    y = computation.create(Opcode.PARAMETER, scalar, attrs=ParameterAttrs(1), name="y")
    computation.root = computation.create(OPERATION[kind], scalar, (x, y))
    return computation


def on_type(kind: ReductionKind, element_type: PrimitiveType) -> ReductionKind:
    """Return the kind as it acts on ``element_type``: on pred, a sum is an or."""
    return _LOGICAL.get(kind, kind) if element_type is PrimitiveType.PRED else kind


def identity_value(kind: ReductionKind, element_type: PrimitiveType) -> object:
    """Return e with reduce(e, x) == x, as a value that NumPy converts to ``element_type``."""
    if kind in (ReductionKind.SUM, ReductionKind.OR, ReductionKind.XOR):
        return 0
    if kind is ReductionKind.PRODUCT:
        return 1
    if kind is ReductionKind.AND:
        return True if element_type is PrimitiveType.PRED else _all_ones(element_type)
    low, high = value_range(element_type)
    return high if kind is ReductionKind.MIN else low


def _all_ones(element_type: PrimitiveType) -> int:
    return -1 if element_type.is_signed_integer else 2**element_type.bits - 1


def value_range(element_type: PrimitiveType) -> tuple[object, object]:
    """Return the least and greatest value, infinities included if the type has them. Raises ShapeError for complex
    numbers.
    """
    if element_type is PrimitiveType.PRED:
        return False, True
    if element_type.is_signed_integer:
        return -(2 ** (element_type.bits - 1)), 2 ** (element_type.bits - 1) - 1
    if element_type.is_unsigned_integer:
        return 0, 2**element_type.bits - 1
    if element_type.is_floating:
        return _float_range(element_type)
    raise ShapeError(f"{element_type} has no order")


def _float_range(element_type: PrimitiveType) -> tuple[object, object]:
    dtype = element_type.numpy
    with np.errstate(all="ignore"):
        infinite = np.array(np.inf, np.float32).astype(dtype)
        if bool(np.isinf(infinite.astype(np.float32))):
            return -np.inf, np.inf
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return info.min, info.max
