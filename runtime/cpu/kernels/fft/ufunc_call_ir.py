"""Native code that calls a loop over lines (runtime/cpu/libraries/pocketfft.py) with a record's own words for its
arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from runtime.codegen.ir.record_words import WORDS
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes

FUNCTION = "spmd_line_loop"
#: Words that hold the addresses of lines and of results.
LINES_WORD, RESULTS_WORD = 2, 4


@dataclass(frozen=True, slots=True)
class LineLoopWords:
    """function, data: of the loop. args: addresses of lines, factor, results; sizes and steps as the loop has them."""

    function: int
    data: int
    args: Sequence[int]
    sizes: Sequence[int]
    steps: Sequence[int]

    def packed(self) -> list[int]:
        return [self.function, self.data, *self.args, *self.sizes, *self.steps]


@cache
def line_loop_code() -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    return host_jit().compile(WORDS + _IR, (FUNCTION,), passes=Passes.TIDY)


_IR = f"""
define void @{FUNCTION}(ptr %record) {{
  %function = call ptr @pointer(ptr %record, i64 0)
  %data = call ptr @pointer(ptr %record, i64 1)
  %args = getelementptr i64, ptr %record, i64 2
  %sizes = getelementptr i64, ptr %record, i64 5
  %steps = getelementptr i64, ptr %record, i64 8
  call void %function(ptr %args, ptr %sizes, ptr %steps, ptr %data)
  ret void
}}
"""
