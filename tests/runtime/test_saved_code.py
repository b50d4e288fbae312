"""Machine code in saved executables: only for who trusts the file, and only that of this processor and compiler."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import spmd
from runtime.codegen.llvm import jit
from runtime.codegen.llvm.jit import Jit, host_jit
from runtime.saved import save_bytes
from runtime.saved_archive import SavedExecutableError, code_bytes, read_archive, read_code
from runtime.saved_program import load_bytes

ANSWER = "define i64 @answer() {\n  ret i64 42\n}\n"
ADD = "HloModule a\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] add(x, x)\n}\n"


def collected(processor: tuple[str, str] | None = None) -> dict[str, bytes]:
    compiler = Jit(processor)
    compiler.collected = {}
    compiler.compile(ANSWER, ("answer",))
    return read_code(code_bytes(compiler.collected))


def answer_with(code: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    """Return what a process that knows ``code`` gets, and the IR that it compiles for that."""
    compiler, made = Jit(), []
    compiler.trusted_code.update(code)
    emit = compiler.compiler.emit
    monkeypatch.setattr(
        compiler.compiler, "emit", lambda ir, passes: made.append(ir) or emit(ir, passes)
    )
    library = compiler.compile(ANSWER, ("answer",))
    return library.function("answer", ctypes.c_int64)(), made


def test_code_is_found_again_and_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    code = collected()
    assert len(code) == 1
    assert answer_with(code, monkeypatch) == (42, [])
    assert answer_with({}, monkeypatch) == (42, [ANSWER])


def test_code_of_another_processor_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    code = collected((jit.host_processor()[0], f"{jit._features()},+prefer-256-bit"))
    assert answer_with(code, monkeypatch) == (42, [ANSWER])


def test_code_that_does_not_link_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    (key,) = collected()
    assert answer_with({key: b"no object file"}, monkeypatch) == (42, [ANSWER])


@pytest.mark.parametrize("at", [0, 70, 100, 110, -1])
def test_damaged_code_is_refused(at: int) -> None:
    data = bytearray(code_bytes({"0" * 64: lambda: b"one", "1" * 64: lambda: b"another"}))
    assert read_code(bytes(data)) == {"0" * 64: b"one", "1" * 64: b"another"}
    data[at] = 0xFF
    with pytest.raises(SavedExecutableError, match="its machine code is damaged"):
        read_code(bytes(data))
    with pytest.raises(SavedExecutableError, match="its machine code is damaged"):
        read_code(bytes(data)[:-2])


def test_an_executable_carries_code_which_the_wary_do_not_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executable = spmd.compile(spmd.parse(ADD))
    code = code_bytes({"a" * 64: lambda: b"planted"})
    data = save_bytes(executable, code)
    assert read_archive(data, "f").code == {"a" * 64: b"planted"}
    monkeypatch.setattr(host_jit(), "trusted_code", {})
    x = np.ones(8, np.float32)
    assert load_bytes(data).run(x)[0].tolist() == [2.0] * 8
    assert host_jit().trusted_code == {}
    assert load_bytes(data, trusted=True).run(x)[0].tolist() == [2.0] * 8
    assert host_jit().trusted_code == {"a" * 64: b"planted"}
    damaged = data.replace(b"planted", b"plantee")
    with pytest.raises(SavedExecutableError, match=r"^f: not a saved executable"):
        load_bytes(damaged, "f")
