"""IR text in, functions out."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from runtime.codegen.llvm_jit import CodegenError, host_jit

ADD = """
define i64 @add(i64 %a, i64 %b) {
  %c = add i64 %a, %b
  ret i64 %c
}
"""


def test_a_function_is_compiled_and_called() -> None:
    library = host_jit().compile(ADD, ["add"])
    add = library.function("add", ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    assert add(40, 2) == 42
    assert library.address("add") != 0


def test_equal_names_in_two_libraries_do_not_meet() -> None:
    jit = host_jit()
    first = jit.compile(ADD, ["add"])
    second = jit.compile(ADD.replace("add i64", "sub i64"), ["add"])
    types = (ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    assert (first.function("add", *types)(5, 3), second.function("add", *types)(5, 3)) == (8, 2)


def test_data_of_the_caller_is_reached_by_its_symbol() -> None:
    table = np.arange(10, dtype=np.int64) ** 2
    ir = """
    @table = external constant [10 x i64]
    define i64 @square(i64 %i) {
      %p = getelementptr i64, ptr @table, i64 %i
      %v = load i64, ptr %p
      ret i64 %v
    }
    """
    library = host_jit().compile(ir, ["square"], {"table": table.ctypes.data}, [table])
    assert library.function("square", ctypes.c_int64, ctypes.c_int64)(7) == 49


@pytest.mark.parametrize("ir", ["define i64 @f(", "define i64 @f() {\n  ret i32 0\n}"])
def test_bad_ir_is_refused_with_llvms_words(ir: str) -> None:
    with pytest.raises(CodegenError, match="LLVM refuses generated code"):
        host_jit().compile(ir, ["f"])
