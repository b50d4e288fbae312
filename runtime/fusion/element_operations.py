"""Element operations: the instructions that compute single elements, as steps of scalar programs.

They include constants of one value and reductions of few elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product

import numpy as np

from runtime.codegen.ir.element_operations import has_operation
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.view_path import ViewOp, ViewPath, repeated
from runtime.program.scalar_program import ElementSignature, ScalarConstant, ScalarOp
from spmd.hlo import NO_ATTRS, Attrs, HloInstruction, Opcode
from spmd.ops.attrs import ConstantAttrs, DimensionsAttrs, SliceAttrs
from spmd.ops.opdef import OPS
from spmd.ops.reduction import reduction_kind
from spmd.shape import ArrayShape, PrimitiveType


def element_operation(signature: ElementSignature, operands: tuple[int, ...]) -> ScalarOp:
    """Return the program step that applies ``signature`` to the registers ``operands``.

    Raises NoEmitterError if there is no code for the operation.
    """
    if not _has_operation(signature):
        types = ", ".join(map(str, signature.operands))
        raise NoEmitterError(
            f"no element operation {signature.opcode}({types}) -> {signature.result}"
        )
    return ScalarOp(signature, operands)


def is_element_operation(x: HloInstruction) -> bool:
    """Return whether code can compute each element of ``x`` from scalars and operand elements at the same index."""
    shapes = [one.shape for one in (x, *x.operands)]
    if not is_elementwise(x.opcode) or renames(x) or not x.num_operands:
        return False
    if not all(isinstance(s, ArrayShape) and s.dims in (x.dims, ()) for s in shapes):
        return False
    result, *kinds = (s.element_type for s in shapes if isinstance(s, ArrayShape))
    return _has_operation(ElementSignature(x.opcode, tuple(kinds), result, x.attrs))


@lru_cache(maxsize=1024)
def _has_operation(signature: ElementSignature) -> bool:
    return has_operation(signature)


def is_elementwise(opcode: Opcode) -> bool:
    """Return whether ``opcode`` computes each element from operand elements at the same index; bitcast-convert does."""
    return OPS[opcode].elementwise or opcode is Opcode.BITCAST_CONVERT


def renames(instruction: HloInstruction) -> bool:
    """Return whether the result equals the operand: a copy, or a convert to the operand's own type."""
    if instruction.opcode is Opcode.CONVERT:
        return instruction.dims == instruction.operand(0).dims and (
            instruction.array_shape.element_type is instruction.operand(0).array_shape.element_type
        )
    return instruction.opcode is Opcode.COPY


def is_plain(x: HloInstruction) -> bool:
    """Return whether ``x`` is an array of static sizes in the default memory space and has no control edges."""
    shape = x.shape
    if not isinstance(shape, ArrayShape) or any(shape.dynamic):
        return False
    if shape.layout is not None and shape.layout.memory_space:
        return False
    return not x.has_control_edges


def array_shape(instruction: HloInstruction) -> ArrayShape:
    """Return the array shape. Raises NoEmitterError if the value is not an array."""
    shape = instruction.shape
    if not isinstance(shape, ArrayShape):
        raise NoEmitterError(f"{instruction.name} is no array")
    return shape


def splat_constant(instruction: HloInstruction) -> ScalarConstant:
    """Return the value that all elements of a constant have.

    Raises NoEmitterError if the elements differ, if there are none, or if they are narrower than a byte.
    """
    literal = instruction.attrs_as(ConstantAttrs).literal
    kind = array_shape(instruction).element_type
    if literal is None or literal.array is None or literal.array.size == 0:
        raise NoEmitterError(f"{instruction.name} has no value")
    if kind.bits < 8 and kind is not PrimitiveType.PRED:
        raise NoEmitterError(f"{instruction.name} is of {kind}")
    array = np.ascontiguousarray(literal.array).reshape(-1)
    rows = array.view(np.uint8).reshape(array.size, array.itemsize)
    if not bool((rows == rows[:1]).all()):
        raise NoEmitterError(f"{instruction.name} is an array constant, which is to be an operand")
    return ScalarConstant(kind, int.from_bytes(rows[0].tobytes(), "little"))


# ---- reductions of few elements, in loops over their results

#: Largest number of elements per result for which a loop over the results computes a reduction. On Zen 5 the norms of
#: 20,000 rows of 2 or of 4 elements take 0.5 of the time of a loop over rows; their softmax takes 0.3 and 0.4 of it.
FEW = 4


def terms(reduce: HloInstruction, path: ViewPath) -> Iterator[tuple[HloInstruction, ViewPath]]:
    """Yield the initial value and then, in order, the elements that ``reduce``, seen through ``path``, combines.

    Raises NoEmitterError if there are more than ``FEW``, or if the reduction has several operands or its own combiner.
    """
    if reduce.num_operands != 2 or reduction_kind(reduce.to_apply) is None:
        raise NoEmitterError(f"{reduce.name} combines elements in its own way")
    array, start = reduce.operands
    dims, result = array_shape(array).dims, array_shape(reduce).dims
    axes = sorted(reduce.attrs_as(DimensionsAttrs).dimensions)
    if not 0 < math.prod(dims[d] for d in axes) <= FEW:
        raise NoEmitterError(f"{reduce.name} combines no elements, or more than {FEW}")
    yield start, (repeated(result), *path)
    for indices in product(*(range(dims[d]) for d in axes)):
        at = dict(zip(axes, indices, strict=True))
        starts = tuple(at.get(d, 0) for d in range(len(dims)))
        limits = tuple(at[d] + 1 if d in at else n for d, n in enumerate(dims))
        sizes = tuple(b - a for a, b in zip(starts, limits, strict=True))
        chosen = ViewOp(Opcode.SLICE, sizes, SliceAttrs(starts, limits, (1,) * len(dims)))
        yield array, (chosen, ViewOp(Opcode.RESHAPE, result), *path)


def combination(reduce: HloInstruction, registers: Sequence[int], following: int) -> list[ScalarOp]:
    """Return the steps that combine ``registers`` one after the other. The first step writes register ``following``.

    Floats narrower than f32 are accumulated in f32, as in other reductions.
    """
    kind = array_shape(reduce).element_type
    total = kind.accumulator
    narrow = total is not kind
    combiner = reduce.to_apply.root
    steps: list[ScalarOp] = []

    def add(
        opcode: Opcode, result: PrimitiveType, attrs: Attrs, *operands: tuple[int, PrimitiveType]
    ) -> int:
        signature = ElementSignature(opcode, tuple(k for _, k in operands), result, attrs)
        steps.append(element_operation(signature, tuple(r for r, _ in operands)))
        return following + len(steps) - 1

    wide = (
        [add(Opcode.CONVERT, total, NO_ATTRS, (r, kind)) for r in registers]
        if narrow
        else registers
    )
    first, *others = wide
    for other in others:
        first = add(combiner.opcode, total, combiner.attrs, (first, total), (other, total))
    if narrow:
        add(Opcode.CONVERT, kind, NO_ATTRS, (first, total))
    return steps
