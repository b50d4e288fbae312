"""IR text in, functions out."""

from __future__ import annotations

import ctypes
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from runtime.codegen.llvm import library
from runtime.codegen.llvm.jit import CodegenError, Jit, Passes, host_jit

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
        host_jit().compile(ir, ["f"]).address("f")


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
    """The other thread compiles without llvmlite's lock."""
    jit = Jit()
    there = ThreadPoolExecutor(1).submit(jit.compiler.emit, ADD, Passes.VECTORIZE).result()
    assert there == jit.compiler.emit(ADD, Passes.VECTORIZE)


SUM = """
define internal void @add(ptr %to, ptr %from) alwaysinline {
  %a = load float, ptr %to
  %b = load float, ptr %from
  %c = fadd float %a, %b
  store float %c, ptr %to
  ret void
}

define void @sum(ptr noalias %record) {
entry:
  %to = load ptr, ptr %record
  %from_slot = getelementptr ptr, ptr %record, i64 1
  %from = load ptr, ptr %from_slot
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %a = getelementptr float, ptr %to, i64 %i
  %b = getelementptr float, ptr %from, i64 %i
  call void @add(ptr %a, ptr %b)
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, 999
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


@pytest.mark.parametrize("passes", Passes)
def test_all_passes_give_code_that_does_what_the_ir_says(passes: Passes) -> None:
    to, source = np.arange(999, dtype=np.float32), np.ones(999, np.float32)
    record = np.array([to.ctypes.data, source.ctypes.data], np.int64)
    code = Jit().compile(SUM, ["sum"], passes=passes)
    code.function("sum", None, ctypes.c_void_p)(record.ctypes.data)
    assert np.array_equal(to, np.arange(1, 1000))


def test_passes_differ() -> None:
    jit = Jit()
    assert len({jit.compiler.emit(SUM, passes) for passes in Passes}) == len(Passes)


def test_c_functions_have_the_types_that_llvmlite_declares() -> None:
    """They are called without llvmlite's declarations: another number or kind of arguments would corrupt memory."""
    import llvmlite.binding.orcjit  # noqa: F401 - declares the linker's functions
    from llvmlite.binding import ffi

    for name, (_, arguments) in library._FUNCTIONS.items():
        declared = getattr(ffi.lib, f"LLVMPY_{name}").argtypes or ()
        if name != "DisposeString":  # for which llvmlite declares none
            assert [_is_pointer(t) or t for t in declared] == [
                _is_pointer(t) or t for t in arguments
            ]


def _is_pointer(kind: type) -> bool:
    return issubclass(kind, ctypes._Pointer) or kind in (ctypes.c_void_p, ctypes.c_char_p)


def test_the_message_of_an_unloading_has_memory_until_the_call_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LLVM writes to it in any case. Memory that was free again may hold an object of another thread by then."""
    texts: weakref.WeakSet[library._Text] = weakref.WeakSet()
    found: list[bool] = []

    class Watched(library._Text):
        def __init__(self) -> None:
            super().__init__()
            texts.add(self)

    def dispose(_: int, address: int) -> bool:
        found.append(address in [text.address for text in texts])
        return False

    linker = object.__new__(library.Linker)
    linker._lock = threading.Lock()
    monkeypatch.setattr(library, "_Text", Watched)
    monkeypatch.setattr(library, "function", lambda _: dispose)
    linker._unload(0)
    assert found == [True]
