"""Visitors of instructions that compute nothing: tuples, barriers, tokens, copies between memory spaces, constants."""

from __future__ import annotations

import numpy as np

from runtime.buffers.linearizer import VISITORS, Linearizer
from runtime.buffers.program import (
    Region,
    Tree,
    ValueView,
    subtree,
)
from runtime.program.strides import StridedView
from spmd.errors import UnsupportedError
from spmd.hlo import HloInstruction, Opcode
from spmd.limits import require_bytes
from spmd.ops.attrs import ConstantAttrs, IotaAttrs, TupleIndexAttrs
from spmd.shape import ArrayShape, PrimitiveType, as_array, as_tuple


@VISITORS.register(Opcode.TUPLE)
def visit_tuple(_: Linearizer, __: HloInstruction, operands: tuple[Tree, ...], ___: Region) -> Tree:
    """Return the trees of the elements."""
    return operands


@VISITORS.register(Opcode.GET_TUPLE_ELEMENT)
def visit_get_tuple_element(
    _: Linearizer, instruction: HloInstruction, operands: tuple[Tree, ...], __: Region
) -> Tree:
    """Return the tree of the element."""
    return subtree(operands[0], (instruction.attrs_as(TupleIndexAttrs).index,))


@VISITORS.register(Opcode.OPT_BARRIER)
def visit_opt_barrier(
    _: Linearizer, __: HloInstruction, operands: tuple[Tree, ...], ___: Region
) -> Tree:
    """Return the trees of the operands."""
    return operands[0] if len(operands) == 1 else operands


@VISITORS.register(Opcode.AFTER_ALL)
def visit_token(_: Linearizer, __: HloInstruction, ___: tuple[Tree, ...], ____: Region) -> Tree:
    """Return None, the tree of a token."""
    return None


@VISITORS.register(Opcode.COPY_START)
def visit_copy_start(
    linearizer: Linearizer,
    instruction: HloInstruction,
    operands: tuple[Tree, ...],
    region: Region,
) -> Tree:
    """Copy the operand to the memory space of the result. Returns (copy, operand, context).

    The copy is synchronous, so nothing is in flight until the done.
    """
    (source,) = operands
    assert isinstance(source, ValueView)
    shape = as_array(as_tuple(instruction.shape).elements[0])
    copied = linearizer.in_space(instruction, instruction.name, source, shape, region)
    return (copied, source, None)


@VISITORS.register(Opcode.COPY_DONE)
def visit_copy_done(
    _: Linearizer, __: HloInstruction, operands: tuple[Tree, ...], ___: Region
) -> Tree:
    """Return the tree of the copy that the start has made."""
    return subtree(operands[0], (0,))


@VISITORS.register(Opcode.CONSTANT)
def visit_constant(
    linearizer: Linearizer, instruction: HloInstruction, _: tuple[Tree, ...], region: Region
) -> Tree:
    """Add a constant, which is always live: its allocation is filled when the program is loaded.

    Raises UnsupportedError if the constant has no value or is no array.
    """
    literal = instruction.attrs_as(ConstantAttrs).literal
    if literal is None:
        raise UnsupportedError(
            f"{instruction!r}: an elided constant has no value to run with; a proto of the module has it "
            "(TensorFlow's stage='hlo_serialized'), and so has text with large constants (--xla_dump_large_constants)"
        )
    if literal.array is None:
        raise UnsupportedError(f"{instruction!r}: the runtime takes array constants only")
    return constant_view(linearizer, instruction, literal.array, region)


@VISITORS.register(Opcode.IOTA)
def visit_iota(
    linearizer: Linearizer, instruction: HloInstruction, _: tuple[Tree, ...], region: Region
) -> Tree:
    """Add the numbers along the iota's dimension as a constant, and return its broadcast to the iota's shape.

    Raises OutOfMemoryError if the machine cannot hold the numbers.
    """
    shape = instruction.array_shape
    if shape.num_elements == 0:
        empty = np.empty(shape.dims, shape.element_type.numpy)
        return constant_view(linearizer, instruction, empty, region)
    dimension = instruction.attrs_as(IotaAttrs).dimension
    numbers = _numbers(shape.dims[dimension], shape.element_type, repr(instruction))
    line = constant_view(linearizer, instruction, numbers, region)
    return ValueView(line.value, line.view.broadcast(shape.dims, (dimension,)))


#: Number of elements that `_numbers` converts at a time, such that the intermediate int64 array stays small.
_CONVERTED = 1 << 16


def _numbers(size: int, element_type: PrimitiveType, what: str) -> np.ndarray:
    """Return the numbers 0, 1, .. ``size`` - 1 as an array of ``element_type``.

    Raises OutOfMemoryError, with ``what`` in its message, if the machine cannot hold the array.
    """
    require_bytes(what, size * element_type.byte_size)
    wide = np.complex128 if element_type.is_complex else np.int64
    numbers = np.empty(size, element_type.numpy)
    for start in range(0, size, _CONVERTED):
        stop = min(start + _CONVERTED, size)
        numbers[start:stop] = np.arange(start, stop).astype(wide).astype(element_type.numpy)
    return numbers


def constant_view(
    linearizer: Linearizer, instruction: HloInstruction, array: np.ndarray, region: Region
) -> ValueView:
    """Add a constant with the content ``array`` and return its view. Equal elements are stored as one element."""
    shape = ArrayShape(instruction.array_shape.element_type, array.shape)
    is_splat = array.size > 1 and bool((_bits(array) == _bits(array)[:1]).all())
    stored = array.reshape(-1)[:1].reshape(()) if is_splat else array
    value = linearizer.new_value(
        instruction.name,
        ArrayShape(shape.element_type, stored.shape),
        region,
        0,
        instruction.array_shape.memory_space,
    )
    value.constant = stored
    view = StridedView.dense(value.shape)
    return ValueView(value, view.broadcast(shape.dims, ()) if is_splat else view)


def _bits(array: np.ndarray) -> np.ndarray:
    """Return the elements as rows of bytes, so that nan equals nan and 0.0 differs from -0.0."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).reshape(flat.size, flat.dtype.itemsize)
