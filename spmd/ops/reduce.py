"""Operations that apply a function over elements: reduce, reduce-window, select-and-scatter, map, scan; batch norm.

reduce and reduce-window take n inputs and n initial values; for n > 1 the result is a tuple.
"""

from __future__ import annotations

import math

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import BatchNormAttrs, DimensionsAttrs, ScanAttrs, WindowAttrs
from spmd.ops.checks import (
    bare,
    check_callees,
    check_dims,
    check_signature,
    one_or_tuple,
    operand_array,
    result_elements,
    same_type,
    scalar,
    scalar_of,
    set_text,
)
from spmd.ops.opdef import define
from spmd.ops.window import Window
from spmd.shape import ArrayShape, PrimitiveType, Shape, TupleShape, as_array


def num_inputs(instruction: HloInstruction) -> int:
    """Return the number of inputs: half of the operands are inputs, half initial values."""
    if instruction.num_operands == 0 or instruction.num_operands % 2:
        raise ShapeError(
            f"expected as many initial values as inputs, found {instruction.num_operands} operands"
        )
    return instruction.num_operands // 2


def inputs(instruction: HloInstruction) -> list[ArrayShape]:
    """Return the shapes of the inputs, which have equal sizes."""
    shapes = [operand_array(instruction, i) for i in range(num_inputs(instruction))]
    for shape in shapes[1:]:
        if shape.dims != shapes[0].dims:
            raise ShapeError(f"inputs must have equal sizes, found {shapes[0]} and {shape}")
    return shapes


def _reduced(instruction: HloInstruction, dims: tuple[int, ...]) -> Shape:
    """Return one result per accumulator; a tuple if the reducer returns one, even of a single accumulator."""
    results = tuple(bare(a.element_type, dims) for a in accumulator_types(instruction))
    as_reducer = isinstance(instruction.to_apply.root.shape, TupleShape)
    return TupleShape(results) if as_reducer else one_or_tuple(results)


def accumulator_types(instruction: HloInstruction) -> tuple[ArrayShape, ...]:
    """Return the scalars that the reducer returns, one per input."""
    root = instruction.to_apply.root.shape
    return tuple(as_array(element) for element in result_elements(root))


def verify_reducer(instruction: HloInstruction) -> None:
    """Check (accumulators, values) -> accumulators, all scalars; the initial values have the accumulators' types."""
    check_callees(instruction, 1)
    n = num_inputs(instruction)
    accumulators = accumulator_types(instruction)
    if len(accumulators) != n or any(a.dims for a in accumulators):
        raise ShapeError(
            f"reducer {instruction.to_apply.name} must return {n} scalars, returns {instruction.to_apply.root.shape}"
        )
    values = tuple(scalar_of(instruction.operand(i).shape) for i in range(n))
    check_signature(instruction.to_apply, (*accumulators, *values), "reducer")
    for i, accumulator in enumerate(accumulators):
        init = instruction.operand(n + i).shape
        if not same_type(init, bare(accumulator.element_type, ())):
            raise ShapeError(f"initial value {i} must be {accumulator}, is {init}")


# ---- reduce
def infer_reduce(instruction: HloInstruction) -> Shape:
    shapes = inputs(instruction)
    removed = instruction.attrs_as(DimensionsAttrs).dimensions
    check_dims(removed, shapes[0].rank, "dimensions")
    dims = tuple(n for d, n in enumerate(shapes[0].dims) if d not in removed)
    check_callees(instruction, 1)
    return _reduced(instruction, dims)


def reduce_applications(instruction: HloInstruction) -> tuple[float, ...]:
    """Return the number of combinations: k - 1 per reduction of k elements."""
    elements = operand_array(instruction, 0).num_elements
    return (float(elements - as_array(result_elements(instruction.shape)[0]).num_elements),)


# ---- windows
def windowed_dims(shape: ArrayShape, window: Window) -> tuple[int, ...]:
    if window.rank != shape.rank:
        raise ShapeError(
            f"window has {window.rank} dimensions, the operand {shape} has {shape.rank}"
        )
    if any(w.size < 1 for w in window.dims):
        raise ShapeError(
            f"a window covers at least one element, found sizes {[w.size for w in window.dims]}"
        )
    return tuple(w.output_size(n) for w, n in zip(window.dims, shape.dims, strict=True))


def infer_reduce_window(instruction: HloInstruction) -> Shape:
    shapes = inputs(instruction)
    dims = windowed_dims(shapes[0], instruction.attrs_as(WindowAttrs).window)
    check_callees(instruction, 1)
    return _reduced(instruction, dims)


def reduce_window_applications(instruction: HloInstruction) -> tuple[float, ...]:
    """Return window size - 1 per result element; a cumulative sum written as a window counts as a scan (XLA's rule)."""
    window = instruction.attrs_as(WindowAttrs).window
    output = as_array(result_elements(instruction.shape)[0])
    size = math.prod(w.size for w in window.dims)
    wide = [d for d, w in enumerate(window.dims) if w.size != 1]
    padded = [d for d, w in enumerate(window.dims) if w.padding_low or w.padding_high]
    if len(wide) == 1 and padded == wide and instruction.num_operands == 2:
        w, span = window.dims[wide[0]], output.dims[wide[0]]
        if w.padding_low == w.padding_high == span - 1 and w.size == 2 * w.padding_low + 1:
            return (float(output.num_elements // span + span - 1),)
    return (float((size - 1) * output.num_elements),)


def infer_select_and_scatter(instruction: HloInstruction) -> Shape:
    operand = operand_array(instruction, 0)
    return bare(operand.element_type, operand.dims)


def verify_select_and_scatter(instruction: HloInstruction) -> None:
    check_callees(instruction, 2)
    operand, source, init = (operand_array(instruction, i) for i in range(3))
    expected = windowed_dims(operand, instruction.attrs_as(WindowAttrs).window)
    if source.dims != expected:
        raise ShapeError(f"source must have sizes {list(expected)}, found {source}")
    if init.dims or init.element_type is not operand.element_type:
        raise ShapeError(f"the initial value must be a scalar {operand.element_type}, found {init}")
    select, scatter = instruction.called_computations
    value = scalar_of(operand)
    check_signature(select, (value, value), "select")
    check_signature(scatter, (value, scalar_of(source)), "scatter")
    for function, returned in ((select, bare(PrimitiveType.PRED, ())), (scatter, value)):
        if not same_type(function.root.shape, returned):
            raise ShapeError(
                f"{function.name} must return {returned}, returns {function.root.shape}"
            )
    if source.element_type is not operand.element_type:
        raise ShapeError(f"source {source} has another element type than the operand {operand}")


def select_and_scatter_applications(instruction: HloInstruction) -> tuple[float, ...]:
    """Return, per source element, window size - 1 selections and one combination."""
    elements = operand_array(instruction, 1).num_elements
    size = math.prod(w.size for w in instruction.attrs_as(WindowAttrs).window.dims)
    return (float(elements * (size - 1)), float(elements))


# ---- map
def infer_map(instruction: HloInstruction) -> Shape:
    check_callees(instruction, 1)
    first = operand_array(instruction, 0)
    return bare(as_array(instruction.to_apply.root.shape).element_type, first.dims)


def verify_map(instruction: HloInstruction) -> None:
    """Check that a map runs over all dimensions; XLA's own programs also write ``dimensions={}`` for that."""
    shapes = [operand_array(instruction, i) for i in range(instruction.num_operands)]
    if any(s.dims != shapes[0].dims for s in shapes):
        raise ShapeError("map operands must have equal sizes")
    dims = instruction.attrs_as(DimensionsAttrs).dimensions
    if dims not in ((), tuple(range(shapes[0].rank))):
        raise ShapeError(
            f"map runs over all {shapes[0].rank} dimensions in order, found {set_text(dims)}"
        )
    if not scalar(instruction.to_apply.root.shape):
        raise ShapeError(f"map function {instruction.to_apply.name} must return a scalar")
    check_signature(instruction.to_apply, tuple(scalar_of(s) for s in shapes), "map function")


def map_applications(instruction: HloInstruction) -> tuple[float, ...]:
    return (float(instruction.array_shape.num_elements),)


# ---- scan: operands are the scanned inputs, then the initial carries; the result is (outputs, final carries)
def infer_scan(instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(ScanAttrs)
    if not 0 <= attrs.num_carries <= instruction.num_operands:
        raise ShapeError(
            f"num_carries={attrs.num_carries} with {instruction.num_operands} operands"
        )


def verify_scan(instruction: HloInstruction) -> None:
    """Check that the function takes (a slice of each input, carries) and returns (a slice of each output, carries)."""
    check_callees(instruction, 1)
    attrs, function = instruction.attrs_as(ScanAttrs), instruction.to_apply
    results = result_elements(instruction.shape)
    returned = result_elements(function.root.shape)
    if len(returned) != len(results) or len(results) < attrs.num_carries:
        raise ShapeError(f"scan returns {instruction.shape}, its function {function.root.shape}")
    scanned = instruction.num_operands - attrs.num_carries
    outputs = len(results) - attrs.num_carries
    if scanned == outputs == 0:
        raise ShapeError("scan has neither inputs nor outputs")
    operands = tuple(x.shape for x in instruction.operands)
    _check_lengths((*operands[:scanned], *results[:outputs]), attrs.dimension)
    taken = (*(_without(s, attrs.dimension) for s in operands[:scanned]), *operands[scanned:])
    check_signature(function, taken, "scan function")
    given = (*(_without(s, attrs.dimension) for s in results[:outputs]), *results[outputs:])
    if not same_type(TupleShape(given), TupleShape(returned)):
        raise ShapeError(
            f"scan function {function.name} must return {one_or_tuple(given)}, "
            f"returns {function.root.shape}"
        )
    if not same_type(TupleShape(operands[scanned:]), TupleShape(results[outputs:])):
        raise ShapeError(
            f"the carries of {function.name} come out with other shapes than they go in"
        )


def _check_lengths(shapes: tuple[Shape, ...], dimension: int) -> None:
    """Check that all are arrays of one size along ``dimension``."""
    arrays = [as_array(s) for s in shapes]
    for array in arrays:
        check_dims((dimension,), array.rank, "dimensions")
    if len({array.dims[dimension] for array in arrays}) > 1:
        raise ShapeError(
            f"scan inputs and outputs must have one length along dimension {dimension}"
        )


def _without(shape: Shape, dimension: int) -> ArrayShape:
    array = as_array(shape)
    return bare(array.element_type, array.dims[:dimension] + array.dims[dimension + 1 :])


def scan_applications(instruction: HloInstruction) -> tuple[float, ...]:
    scanned = operand_array(instruction, 0)
    return (float(scanned.num_elements),)


# ---- batch normalization: (operand, then values per feature: scale, offset, mean, variance, ...)
#: The last operand of batch-norm-grad.
_OUTPUT_GRADIENT = 4


def infer_batch_norm(instruction: HloInstruction) -> Shape:
    operand, features = _batch_norm_shapes(instruction)
    return TupleShape((operand, features, features))


def infer_batch_norm_inference(instruction: HloInstruction) -> Shape:
    operand, _ = _batch_norm_shapes(instruction)
    return operand


def _batch_norm_shapes(instruction: HloInstruction) -> tuple[ArrayShape, ArrayShape]:
    """Return the operand's shape and that of a value per feature; all operands have one of the two."""
    operand = operand_array(instruction, 0)
    index = instruction.attrs_as(BatchNormAttrs).feature_index
    check_dims((index,), operand.rank, "feature_index")
    if not operand.element_type.is_floating:
        raise ShapeError(f"{instruction.opcode} takes floating-point numbers, found {operand}")
    full = bare(operand.element_type, operand.dims)
    features = bare(operand.element_type, (operand.dims[index],))
    for i in range(1, instruction.num_operands):
        gradient = instruction.opcode is Opcode.BATCH_NORM_GRAD and i == _OUTPUT_GRADIENT
        wanted = full if gradient else features
        if not same_type(operand_array(instruction, i), wanted):
            raise ShapeError(f"operand {i} must be {wanted}, found {operand_array(instruction, i)}")
    return full, features


define(Opcode.REDUCE, infer_reduce, None, verify_reducer, applications=reduce_applications)
define(
    Opcode.REDUCE_WINDOW,
    infer_reduce_window,
    None,
    verify_reducer,
    applications=reduce_window_applications,
)
define(
    Opcode.SELECT_AND_SCATTER,
    infer_select_and_scatter,
    3,
    verify_select_and_scatter,
    applications=select_and_scatter_applications,
)
define(Opcode.MAP, infer_map, None, verify_map, applications=map_applications, elementwise=True)
define(Opcode.SCAN, infer_scan, None, verify_scan, applications=scan_applications)
define(Opcode.BATCH_NORM_TRAINING, infer_batch_norm, 3)
define(Opcode.BATCH_NORM_GRAD, infer_batch_norm, 5)
define(Opcode.BATCH_NORM_INFERENCE, infer_batch_norm_inference, 5)
