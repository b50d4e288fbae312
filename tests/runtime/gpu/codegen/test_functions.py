"""Functions and arithmetic that use a GPU's own instructions, emulated: exp, tanh, bf16, maxima."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from runtime.gpu.codegen.array_access import INSTRUCTIONS
from runtime.gpu.codegen.emitters import GpuArrays, sources
from runtime.gpu.codegen.launch import GpuTarget
from runtime.gpu.codegen.ptx_module import ptx_text
from runtime.program.kernel import KernelArrays
from runtime.program.records.loop import operation_loop
from runtime.program.scalar_program import ElementSignature
from runtime.program.strides import StridedView
from spmd.hlo import Opcode
from spmd.literal import NDArray
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.gpu.codegen.both_ways import on_gpu
from tests.runtime.gpu.codegen.emulator import needs_contexts

F32, BF16 = PrimitiveType.F32, PrimitiveType.BF16
EXACT = {Opcode.EXPONENTIAL: np.exp, Opcode.TANH: np.tanh}


def computed(opcode: Opcode, *operands: NDArray) -> NDArray:
    """Return the results of one operation on the emulated GPU."""
    kind = PrimitiveType.from_numpy(operands[0].dtype)
    view = StridedView.dense(ArrayShape(kind, operands[0].shape))
    signature = ElementSignature(opcode, (kind,) * len(operands), kind)
    result = np.empty_like(operands[0])
    kernel = operation_loop(signature, [view] * len(operands), view)
    assert on_gpu(kernel, KernelArrays(operands, (result,)))
    return result


def text_of(opcode: Opcode, kind: PrimitiveType, arch: str = "sm_90") -> str:
    view = StridedView.dense(ArrayShape(kind, (1 << 20,)))
    kernel = operation_loop(ElementSignature(opcode, (kind, kind), kind), [view, view], view)
    (source,) = sources(kernel, GpuArrays((view, view), (view,), (), GpuTarget())) or ()
    return ptx_text(source.ir, arch)


def arguments() -> NDArray:
    """Numbers of every size and sign, and closely where exp and tanh change their form or leave the range."""
    rng = np.random.default_rng(5)
    sizes = rng.uniform(1, 2, 4000) * 2.0 ** rng.integers(-140, 8, 4000)
    near = [c + rng.uniform(-1, 1, 500) for c in (0.0, 0.625, -87.3, -103.5, 88.7, 9.5)]
    values = np.concatenate([sizes, -sizes, *near])
    return values.astype(np.float32)


@needs_contexts
@pytest.mark.parametrize("opcode", EXACT)
def test_two_units_in_the_last_place(opcode: Opcode) -> None:
    x = arguments()
    with np.errstate(over="ignore", under="ignore"):
        exact = EXACT[opcode](x.astype(np.float64))
        unit = np.spacing(np.abs(exact.astype(np.float32)))
    got = computed(opcode, x)
    finite = np.isfinite(unit)
    error = np.abs(got[finite].astype(np.float64) - exact[finite]) / unit[finite]
    assert error.max() <= 2.0
    assert (got[~finite] == np.inf).all()


@needs_contexts
@pytest.mark.parametrize("opcode", EXACT)
def test_special_values(opcode: Opcode) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, -1e30], np.float32)
    with np.errstate(over="ignore"):
        want = EXACT[opcode](x)
    np.testing.assert_array_equal(computed(opcode, x), want)
    if opcode is Opcode.TANH:
        assert np.signbit(computed(opcode, x)[4])


@needs_contexts
@pytest.mark.parametrize("opcode", [Opcode.ADD, Opcode.SUBTRACT, Opcode.MULTIPLY])
def test_bf16_is_rounded_once(opcode: Opcode) -> None:
    bits = np.random.default_rng(6).integers(0, 1 << 16, (2, 5000)).astype(np.uint16)
    a, b = bits.view(ml_dtypes.bfloat16)
    function = {Opcode.ADD: np.add, Opcode.SUBTRACT: np.subtract, Opcode.MULTIPLY: np.multiply}
    with np.errstate(all="ignore"):
        want = function[opcode](a.astype(np.float32), b.astype(np.float32))
        wanted = want.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(computed(opcode, a, b).astype(np.float32), wanted)


@pytest.mark.parametrize(
    ("arch", "instruction"), [("sm_80", "fma.rn.bf16"), ("sm_90", "add.rn.bf16")]
)
def test_bf16_is_added_by_one_instruction(arch: str, instruction: str) -> None:
    assert INSTRUCTIONS.short
    text = text_of(Opcode.ADD, BF16, arch)
    assert instruction in text
    assert ".f32" not in text


def test_a_maximum_is_one_instruction() -> None:
    text = text_of(Opcode.MAXIMUM, F32)
    assert "max.NaN.f32" in text
    assert "setp" not in text.split("max.NaN.f32")[1]


@needs_contexts
@pytest.mark.parametrize("opcode", [Opcode.MAXIMUM, Opcode.MINIMUM])
def test_extremes_keep_nan(opcode: Opcode) -> None:
    a = np.array([np.nan, 1.0, np.nan, -np.inf, 2.0], np.float32)
    b = np.array([1.0, np.nan, np.nan, 3.0, -2.0], np.float32)
    want = np.maximum(a, b) if opcode is Opcode.MAXIMUM else np.minimum(a, b)
    np.testing.assert_array_equal(computed(opcode, a, b), want)
