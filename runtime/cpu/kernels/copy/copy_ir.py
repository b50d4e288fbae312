"""Native code of copies between strided arrays: contiguous rows, single elements, and transposes tile by tile.

An index counter iterates over all dimensions except the innermost ones, which one of five operations copies. Elements
are integers of their width, so that one function serves all types of that width.
"""

from __future__ import annotations

from typing import Any

from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.kernels.copy.copy import FUNCTION, RANK, CopyRecord, Innermost, transpose_name
from runtime.cpu.kernels.copy.transpose_ir import add_transpose
from runtime.program.argument_record import word_index


def copy_ir(innermost: Innermost, width: int) -> str:
    """Return the IR of ``copy_code``."""
    module = Module()
    add_copy(module, innermost, width)
    return module.text()


def add_copy(module: Module, innermost: Innermost, width: int) -> None:
    """Add the function ``FUNCTION`` and the functions that it calls to ``module``."""
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
