"""Native code of copies between strided arrays: contiguous rows, single elements, and transposes tile by tile.

A copy iterates over all dimensions but the innermost ones with an index counter of any rank, and over these with one of
five loops. Elements are bytes: one function serves all types of a width.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cache
from typing import Any

from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Address, Record, Word, record, word_index
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.kernels.copy.transpose_ir import add_transpose, transpose_name

FUNCTION = "spmd_copy"
#: Most dimensions around the innermost operation.
RANK = 16
#: Widths in bytes of elements that have code.
WIDTHS = (1, 2, 4, 8, 16)


class Innermost(Enum):
    """Operation at each position of the index counter, and the meaning of the record's counts and strides."""

    ROWS = "rows"
    """count: bytes of a row, which is contiguous in both arrays."""
    FILL = "fill"
    """count: elements. One element is written to consecutive elements."""
    REVERSED = "reversed"
    """count: elements, contiguous in the target, and in the source from the last one to the first."""
    STRIDED = "strided"
    """count: elements, with strides in both arrays."""
    TRANSPOSE = "transpose"
    """[i, j] of ``count`` and ``columns``, contiguous in j, to [j, i]; strides along i and along j."""


#: Operations without a loop to be vectorized: by their strides, or because vector code is written here or in the C
#: library.
_AS_WRITTEN = (Innermost.ROWS, Innermost.STRIDED, Innermost.TRANSPOSE)


@record
class CopyDimension(Record):
    """Dimension around the innermost operation; strides in bytes."""

    size: Word
    source: Word
    target: Word


@record
class CopyRecord(Record):
    """Addresses of the first elements, the innermost operation, and the ``rank`` dimensions around it."""

    source: Address
    target: Address
    rank: Word
    count: Word
    columns: Word
    source_stride: Word
    target_stride: Word
    dimensions: Sequence[CopyDimension]


#: Indices of the record's words with the addresses of the first elements.
SOURCE_WORD, TARGET_WORD = (word_index(CopyRecord, name) for name in ("source", "target"))


@cache
def copy_code(innermost: Innermost, width: int) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for elements of ``width`` bytes, which takes the address of a CopyRecord."""
    module = Module()
    add_copy(module, innermost, width)
    passes = Passes.TIDY if innermost in _AS_WRITTEN else Passes.VECTORIZE
    return host_jit().compile(module.text(), (FUNCTION,), passes=passes)


def add_copy(module: Module, innermost: Innermost, width: int) -> None:
    """Add ``FUNCTION`` and the functions it calls."""
    if innermost is Innermost.TRANSPOSE:
        add_transpose(module, width, "internal")
    f = FunctionWriter(FUNCTION, CopyRecord, module=module, dimensions=0)
    rec = f.record
    pointers = (rec.source, rec.target)
    first = f.parameters[0].element("i64", word_index(CopyRecord, "dimensions"))
    with f.index_loop(first, rec.rank, RANK, pointers) as (source, target):
        _WRITE[innermost](f, rec, source, target, width)
    f.finish()


def _rows(f: FunctionWriter, rec: Any, source: Pointer, target: Pointer, _: int) -> None:
    f.memcpy(target, source, rec.count)


def _fill(f: FunctionWriter, rec: Any, source: Pointer, target: Pointer, width: int) -> None:
    kind = f"i{8 * width}"
    element = source.load(kind, align=1)
    with f.vector_loop(rec.count) as i:
        target.element(kind, i).store(element, align=1)


def _reversed(f: FunctionWriter, rec: Any, source: Pointer, target: Pointer, width: int) -> None:
    kind = f"i{8 * width}"
    with f.vector_loop(rec.count) as i:
        target.element(kind, i).store(source.element(kind, -i).load(kind, align=1), align=1)


def _strided(f: FunctionWriter, rec: Any, source: Pointer, target: Pointer, width: int) -> None:
    with f.loop(rec.count) as i:
        element = source.at(i * rec.source_stride).load(f"i{8 * width}", align=1)
        target.at(i * rec.target_stride).store(element, align=1)


def _transposed(f: FunctionWriter, rec: Any, source: Pointer, target: Pointer, width: int) -> None:
    ways = (source, rec.source_stride, target, rec.target_stride)
    f.call("void", transpose_name(width), *ways, rec.count, rec.columns)


_WRITE = {
    Innermost.ROWS: _rows,
    Innermost.FILL: _fill,
    Innermost.REVERSED: _reversed,
    Innermost.STRIDED: _strided,
    Innermost.TRANSPOSE: _transposed,
}
