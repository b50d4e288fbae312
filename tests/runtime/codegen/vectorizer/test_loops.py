"""Loops over vectors that are written beside those that LLVM makes of the same text: the same bits, nothing else."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.llvm.jit import Passes, host_has, host_jit
from runtime.codegen.vectorizer.loops import vectorized
from runtime.codegen.vectorizer.target import AVX2, AVX512, VectorTarget, vector_target
from runtime.cpu.kernels.loop.loop import FUNCTION, InnerStride, LoopVariant
from runtime.cpu.kernels.loop.loop_ir import loop_ir
from runtime.program.scalar_program import ElementSignature, ScalarOp, ScalarProgram
from runtime.program.slice_starts import StartsVariant
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType

P = PrimitiveType

TARGETS = [
    pytest.param(
        AVX512,
        marks=pytest.mark.skipif(
            not host_has("avx512bw", "avx512dq", "avx512vl"), reason="no AVX-512 here"
        ),
        id="avx512",
    ),
    pytest.param(
        AVX2, marks=pytest.mark.skipif(not host_has("avx2"), reason="no AVX2 here"), id="avx2"
    ),
]


def loop(
    opcode: Opcode, kind: PrimitiveType, arity: int, steps: tuple[InnerStride, ...] = ()
) -> LoopVariant:
    signature = ElementSignature(opcode, (kind,) * arity, kind)
    program = ScalarProgram((kind,) * arity, (ScalarOp(signature, tuple(range(arity))),), (arity,))
    leaves = steps or (InnerStride.PACKED,) * arity
    return LoopVariant(
        program,
        1,
        leaves,
        (InnerStride.PACKED,),
        (False,) * arity,
        StartsVariant((), ((),) * (arity + 1)),
    )


@pytest.mark.parametrize("by_llvm", [False, True])
def test_a_module_with_a_loop_for_llvm_is_left_to_llvm(by_llvm: bool) -> None:
    """The passes that follow the project's vectorizer would leave such a loop scalar."""
    module = Module()
    for name, left in (("first", False), ("second", by_llvm)):
        f = internal_function(module, name, "ptr", "i64")
        array, count = f.parameters
        with f.vector_loop(count, by_llvm=left) as i:
            array.element("float", i).store(array.element("float", i).load("float") + 1.0)
        f.finish()
    assert (vectorized(module.text(), AVX512) is None) == by_llvm


def results(ir: str, passes: Passes, arrays: list[np.ndarray], count: int) -> np.ndarray:
    """Return the memory after ``count`` elements were written to it, the bytes behind them included."""
    out = np.full(count + 100, 77, arrays[0].dtype)
    every = [*arrays, out]
    words = [a.ctypes.data for a in every] + [count] + [a.itemsize for a in every]
    record = np.array(words, np.int64)
    code = host_jit().compile(ir, (FUNCTION,), passes=passes)
    code.function(FUNCTION, None, ctypes.c_void_p)(record.ctypes.data)
    return out


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("opcode", "kind", "arity"),
    [
        (Opcode.ADD, P.F32, 2),
        (Opcode.EXPONENTIAL, P.F32, 1),
        (Opcode.TANH, P.F64, 1),
        (Opcode.MULTIPLY, P.BF16, 2),
        (Opcode.MAXIMUM, P.S8, 2),
        (Opcode.DIVIDE, P.S32, 2),
        (Opcode.POPCNT, P.U16, 1),
    ],
    ids=lambda one: str(getattr(one, "value", one)),
)
def test_any_count(opcode: Opcode, kind: PrimitiveType, arity: int, target: VectorTarget) -> None:
    ir = loop_ir(loop(opcode, kind, arity))
    written = vectorized(ir, target)
    assert written is not None
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, 300).astype(kind.numpy) for _ in range(arity)]
    for count in (1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 65, 127, 200):
        got = results(written, Passes.TIDY, arrays, count)
        want = results(ir, Passes.UNROLL, arrays, count)
        assert got.tobytes() == want.tobytes()


def test_one_body() -> None:
    """Long bodies are written once: whole vectors and the remainder use the same lines."""
    written = vectorized(loop_ir(loop(Opcode.TANH, P.F64, 1)), AVX512)
    assert written is not None
    assert written.count("= call { <8 x double> } @body") == 1
    assert "define internal { double } @body" not in written


def test_a_number_for_all_stays_one() -> None:
    form = loop(Opcode.ADD, P.F32, 2, (InnerStride.PACKED, InnerStride.REPEATED))
    written = vectorized(loop_ir(form), AVX512)
    assert written is not None
    assert "@body.64vs(<64 x float>" in written


def test_other_loops_are_left_to_llvm() -> None:
    """Processors gather no elements of two bytes."""
    assert (
        vectorized(
            loop_ir(loop(Opcode.POWER, P.F16, 2, (InnerStride.PACKED, InnerStride.STRIDED))), AVX512
        )
        is None
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("opcode", [Opcode.ADD, Opcode.POWER])
@pytest.mark.parametrize("kind", [P.F32, P.F64, P.S32, P.U64])
def test_elements_in_strides(opcode: Opcode, kind: P, target: VectorTarget) -> None:
    """They are gathered and scattered where that pays: if there is much to compute."""
    form = loop(opcode, kind, 2, (InnerStride.PACKED, InnerStride.STRIDED))
    ir = loop_ir(replace(form, results=(InnerStride.STRIDED,)))
    written = vectorized(ir, target)
    assert written is not None
    is_worth_it = opcode is Opcode.POWER
    assert ("llvm.masked.gather" in written) == is_worth_it
    assert ("llvm.masked.scatter" in written) == is_worth_it
    rng = np.random.default_rng(0)
    x, y = (rng.integers(1, 9, n).astype(kind.numpy) for n in (300, 900))
    for count in (1, 7, 8, 15, 16, 17, 33, 100):
        found = []
        for text, passes in ((written, Passes.TIDY), (ir, Passes.UNROLL)):
            out = np.full(400, 77, kind.numpy)
            firsts = [x.ctypes.data, y.ctypes.data, out[399:].ctypes.data]  # backwards
            steps = [size * x.itemsize for size in (1, 3, -2)]
            record = np.array([*firsts, count, *steps], np.int64)
            code = host_jit().compile(text, (FUNCTION,), passes=passes)
            code.function(FUNCTION, None, ctypes.c_void_p)(record.ctypes.data)
            found.append(out)
        np.testing.assert_array_equal(*found)
        assert np.count_nonzero(found[0] != 77) <= count


def test_elements_too_large_for_masks_are_left_to_llvm() -> None:
    assert vectorized(loop_ir(loop(Opcode.ADD, P.C128, 2)), AVX512) is None


def test_without_loops() -> None:
    assert vectorized("define void @f() {\n  ret void\n}", AVX2) is None


def test_without_masks_the_remainder_is_short() -> None:
    """Rounds of a register, then half a register, then single elements; no store is masked."""
    written = vectorized(loop_ir(loop(Opcode.ADD, P.F32, 2)), AVX2)
    assert written is not None
    assert "@body.8vv(<8 x float>" in written
    assert "@body.4vv(<4 x float>" in written
    assert "masked" not in written


def test_narrow_elements_in_memory_do_not_widen_the_others() -> None:
    """Registers are filled by what is loaded and stored, four bytes at least: values of eight take two."""
    written = vectorized(loop_ir(loop(Opcode.POWER, P.F32, 2)), AVX2)
    assert written is not None
    assert "load <8 x float>" in written
    assert "<8 x double>" in written


@pytest.mark.parametrize(
    ("features", "target"),
    [
        ("+avx,+avx2,-avx512bw", AVX2),
        ("+avx2,+avx512bw,+avx512dq,+avx512vl", AVX512),
        ("+neon", None),
    ],
)
def test_target_of_a_processor(features: str, target: VectorTarget | None) -> None:
    assert vector_target(features) is target
