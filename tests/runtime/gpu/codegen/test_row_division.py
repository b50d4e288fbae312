"""Divisions by a number of a row on the emulated GPU: the bits of ordinary divisions, whatever the numbers are."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.compile import build_executable, schedule_module
from runtime.fusion.priority_fusion import PriorityFusion
from runtime.gpu.codegen.row_division import divided
from runtime.gpu.codegen.row_inputs import Part
from runtime.program.kernel import KernelArrays
from runtime.program.records.rows import RowInput, RowKernel, Source
from runtime.program.scalar_program import ElementSignature, ScalarOp, ScalarProgram
from runtime.program.thunks import KernelThunk
from spmd.hlo import Opcode
from spmd.literal import NDArray
from spmd.machine.named import machine_named
from spmd.shape import PrimitiveType
from tests.runtime.gpu.codegen.both_ways import on_gpu
from tests.runtime.gpu.codegen.emulator import needs_contexts
from tests.runtime.programs.build import module_of

F32 = PrimitiveType.F32
ROWS, LENGTH = 40, 96
TEXT = f"""HloModule m
larger {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}}
ENTRY e {{
  x = f32[{ROWS},{LENGTH}] parameter(0)
  y = f32[{ROWS},{LENGTH}] parameter(1)
  low = f32[] constant(-inf)
  m = f32[{ROWS}] reduce(x, low), dimensions={{1}}, to_apply=larger
  b = f32[{ROWS},{LENGTH}] broadcast(m), dimensions={{0}}
  d = f32[{ROWS},{LENGTH}] divide(y, b)
  ROOT r = f32[{ROWS},{LENGTH}] negate(d)
}}
"""


def quotients(dividends: NDArray, divisors: NDArray) -> tuple[NDArray, NDArray]:
    """Return the negative quotients of each row and its divisor, on the emulated GPU and by NumPy."""
    module = schedule_module(module_of(TEXT))
    PriorityFusion(machine=machine_named("dgx-h200")).run(module)
    (thunk,) = build_executable(module).program.thunks.thunks
    assert isinstance(thunk, KernelThunk)
    assert isinstance(thunk.kernel, RowKernel)
    x = np.broadcast_to(divisors[:, None], (ROWS, LENGTH)).copy()
    result = np.empty_like(x)
    operands = tuple({"x": x, "y": dividends}[one.name] for one in module.entry.root.operands)
    assert on_gpu(thunk.kernel, KernelArrays(operands, (result,)))
    with np.errstate(all="ignore"):
        return result, -(dividends / x)


def same_bits(got: NDArray, want: NDArray) -> None:
    numbers = ~np.isnan(want)
    assert np.isnan(got[~numbers]).all()
    np.testing.assert_array_equal(got[numbers].view(np.int32), want[numbers].view(np.int32))


@needs_contexts
@pytest.mark.parametrize(
    ("dividends", "divisors"),
    [
        ((-4, 4), (-4, 4)),
        ((-149, 127), (-149, 127)),
        ((-126, -102), (0, 24)),
        ((-126, -124), (0, 1)),
        ((-40, -20), (100, 127)),
        ((100, 127), (-40, -1)),
    ],
)
def test_quotients_are_those_of_ordinary_divisions(
    dividends: tuple[int, int], divisors: tuple[int, int]
) -> None:
    """Exponents of all sizes, and such that all groups of elements are near one end of the range."""
    rng = np.random.default_rng(5)
    shape = (ROWS, LENGTH)
    with np.errstate(all="ignore"):
        y = (rng.uniform(1, 2, shape) * 2.0 ** rng.integers(*dividends, shape)).astype(np.float32)
        x = (rng.uniform(1, 2, ROWS) * 2.0 ** rng.integers(*divisors, ROWS)).astype(np.float32)
    y *= rng.choice(np.array([-1, 1, 0], np.float32), shape)
    x[::4] *= -1
    same_bits(*quotients(y, x))


@needs_contexts
def test_special_numbers() -> None:
    """One of them among ordinary numbers, of which other groups of elements consist."""
    special = np.array(
        [0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1e-38, 3e38, 2.0**-103], np.float32
    )
    rng = np.random.default_rng(8)
    y = rng.uniform(1, 2, (ROWS, LENGTH)).astype(np.float32)
    y[:, 7] = np.resize(special, ROWS)
    x = rng.uniform(1, 2, ROWS).astype(np.float32)
    x[20:29] = special
    x[30:33] = 2.0**24, 2.0**25, 2.0**-30
    same_bits(*quotients(y, x))


def test_only_divisions_by_a_number_of_the_row_are_taken_apart() -> None:
    divide = ElementSignature(Opcode.DIVIDE, (F32, F32), F32)
    negate = ElementSignature(Opcode.NEGATE, (F32,), F32)
    row = RowInput(Source.REDUCTION, 0)
    program = ScalarProgram(
        (F32, F32),
        (ScalarOp(negate, (0,)), ScalarOp(divide, (2, 1)), ScalarOp(negate, (3,))),
        (4, 2),
    )
    found = divided(Part(program, (0, row)))
    assert found is not None
    assert found.before.program == ScalarProgram((F32, F32), program.steps[:1], (2, 1))
    assert found.after.program == ScalarProgram(
        (F32, F32, F32), (ScalarOp(negate, (0,)), ScalarOp(negate, (2,))), (4, 3)
    )
    assert divided(Part(program, (0, 1))) is None
    assert divided(Part(program, (row, row))) is None
