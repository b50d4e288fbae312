"""IR text in, functions out."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from runtime.codegen.llvm_jit import CodegenError, Jit, host_jit

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


def test_libraries_are_compiled_side_by_side_and_linked_once() -> None:
    """Each when it is asked for, in any order, from any thread."""
    jit = host_jit()
    libraries = [jit.compile(ADD.replace("%a, %b", f"%a, {n}"), ["add"]) for n in range(20)]
    types = (ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)

    def result(n: int) -> int:
        return int(libraries[n % 20].function("add", *types)(100, 0))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(result, reversed(range(60)))) == [
            100 + n % 20 for n in reversed(range(60))
        ]


def test_compiling_on_another_thread_gives_the_same_code() -> None:
    """Without llvmlite's lock, as with it."""
    jit = Jit()
    module = jit._parsed(ADD)
    assert ThreadPoolExecutor(1).submit(jit._emitted, module, 2, False).result() == jit._emitted(
        jit._parsed(ADD), 2, False
    )
