"""Calls of native code: when their functions' addresses are asked for."""

from __future__ import annotations

from typing import cast

from runtime.codegen.llvm.jit import NativeLibrary
from runtime.cpu.kernels.native_call import NativeCall, RepeatRecord, repeated
from runtime.program.argument_record import word_index
from spmd.literal import NDArray


class _LateCode:
    """Code of which the address is known only when the compiler is done."""

    is_compiled = False

    def address(self, name: str) -> int:
        assert self.is_compiled, f"{name} is not compiled yet"
        return 4096


def test_repeated_calls_are_made_before_their_code_is_compiled() -> None:
    code = _LateCode()
    call = NativeCall(cast("NativeLibrary", code), "f", 64, ())
    (twice,) = repeated(2, [call], [])
    (six_times,) = repeated(3, [twice], [])
    code.is_compiled = True
    assert six_times.function
    at = word_index(RepeatRecord, "calls")
    (record,) = cast("tuple[NDArray]", twice.alive)
    assert record[at : at + 2].tolist() == [4096, 64]
