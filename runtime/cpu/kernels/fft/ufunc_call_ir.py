"""Native code that calls a loop over lines (runtime/cpu/libraries/pocketfft.py) with arguments from a record."""

from __future__ import annotations

from functools import cache

from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.program.argument_record import Address, Record, Word, record, word_index

FUNCTION = "spmd_line_loop"


@record
class LineLoopRecord(Record):
    """Record of a call of ``function``, the compiled loop of a NumPy ufunc, with ``data``.

    The other fields are the loop's arguments: the addresses of lines, factor and results, then sizes in elements, and
    then strides in bytes.
    """

    function: Address
    data: Address
    lines: Address
    factor: Address
    results: Address
    count: Word
    source_size: Word
    target_size: Word
    line_step: Word
    factor_step: Word
    result_step: Word
    source_step: Word
    target_step: Word


#: Indices of the words that hold the addresses of lines and of results.
LINES_WORD, RESULTS_WORD = (word_index(LineLoopRecord, name) for name in ("lines", "results"))


@cache
def line_loop_code() -> NativeLibrary:
    """Return the library of ``FUNCTION``, which takes the address of a LineLoopRecord."""
    f = FunctionWriter(FUNCTION, LineLoopRecord)
    rec = f.record
    function, data = rec.function, rec.data
    lists = [
        f.parameters[0].element("i64", word_index(LineLoopRecord, name))
        for name in ("lines", "count", "line_step")
    ]
    f.call("void", function.name, *lists, data)
    return host_jit().compile(f.end(), (FUNCTION,), passes=Passes.TIDY)
