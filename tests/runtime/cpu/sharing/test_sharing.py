"""Threads that share a device's work: every kind of kernel, in pieces of odd sizes, gives the bits of one thread."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pytest

from runtime.compile import build_executable
from runtime.cpu.kernels.convolution.ir.vector_multiply_ir import vector_micro_kernel
from runtime.cpu.kernels.gemm import tuning
from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from runtime.cpu.libraries.blas import cut_multiples
from runtime.cpu.loopback import LoopbackDevices
from runtime.cpu.sharing import cut_kernels, pieces
from runtime.cpu.step import prepare, segment
from runtime.cpu.step.segment import ProgressPoints
from runtime.executable import Executable
from runtime.fusion.priority_fusion import PriorityFusion
from runtime.program.kernel import KernelArrays
from runtime.program.records.dot import DotKernel
from spmd.shape import PrimitiveType
from tests.runtime.programs import module_of, random_inputs

KERNELS = {
    "loop": """
  x = f32[67,131] parameter(0)
  y = f32[67,131] parameter(1)
  t = f32[67,131] tanh(x)
  ROOT r = f32[67,131] multiply(t, y)""",
    "line": """
  x = f32[1001] parameter(0)
  ROOT r = f32[1001] exponential(x)""",
    "transpose": """
  x = f32[131,67] parameter(0)
  y = f32[67,131] parameter(1)
  t = f32[67,131] transpose(x), dimensions={1,0}
  ROOT r = f32[67,131] add(t, y)""",
    "numbers": """
  x = f32[67,131] parameter(0)
  i = f32[67,131] iota(), iota_dimension=0
  j = f32[67,131] iota(), iota_dimension=1
  s = f32[67,131] add(i, j)
  ROOT r = f32[67,131] add(s, x)""",
    "shifted": """
  x = f32[67,131] parameter(0)
  k = s32[] parameter(1)
  zero = s32[] constant(0)
  d = f32[31,131] dynamic-slice(x, k, zero), dynamic_slice_sizes={31,131}
  ROOT r = f32[31,131] negate(d)""",
    "rows": """
  x = f32[67,131] parameter(0)
  least = f32[] constant(-inf)
  m = f32[67] reduce(x, least), dimensions={1}, to_apply=max
  mb = f32[67,131] broadcast(m), dimensions={0}
  d = f32[67,131] subtract(x, mb)
  e = f32[67,131] exponential(d)
  zero = f32[] constant(0)
  s = f32[67] reduce(e, zero), dimensions={1}, to_apply=sum
  sb = f32[67,131] broadcast(s), dimensions={0}
  ROOT r = f32[67,131] divide(e, sb)""",
    "columns": """
  x = f32[131,333] parameter(0)
  zero = f32[] constant(0)
  ROOT s = f32[333] reduce(x, zero), dimensions={0}, to_apply=sum""",
    "coordinates": """
  x = f32[67,131,3] parameter(0)
  y = f32[67,131,3] exponential(x)
  zero = f32[] constant(0)
  ROOT s = f32[67,3] reduce(y, zero), dimensions={1}, to_apply=sum""",
    "product of a slice": """
  x = f32[331,65] parameter(0)
  w = f32[5,65,129] parameter(1)
  k = s32[] parameter(2)
  zero = s32[] constant(0)
  d = f32[1,65,129] dynamic-slice(w, k, zero, zero), dynamic_slice_sizes={1,65,129}
  v = f32[65,129] reshape(d)
  ROOT r = f32[331,129] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "product": """
  x = f32[331,65] parameter(0)
  w = f32[65,129] parameter(1)
  ROOT r = f32[331,129] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "wide product": """
  x = f32[65,70] parameter(0)
  w = f32[777,65] parameter(1)
  ROOT r = f32[70,777] dot(x, w), lhs_contracting_dims={0}, rhs_contracting_dims={1}""",
    "large product": """
  x = f32[512,512] parameter(0)
  w = f32[512,512] parameter(1)
  ROOT r = f32[512,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "thin product": """
  x = f32[3,300] parameter(0)
  w = f32[300,1111] parameter(1)
  ROOT r = f32[3,1111] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "product of a vector": """
  x = f32[1003,300] parameter(0)
  w = f32[300] parameter(1)
  ROOT r = f32[1003] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "double product": """
  x = f64[331,65] parameter(0)
  w = f64[65,129] parameter(1)
  ROOT r = f64[331,129] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "integer product": """
  x = s32[331,65] parameter(0)
  w = s32[65,129] parameter(1)
  ROOT r = s32[331,129] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "narrow product": """
  x = bf16[331,64] parameter(0)
  w = bf16[64,129] parameter(1)
  ROOT r = bf16[331,129] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "wide narrow product": """
  x = bf16[331,64] parameter(0)
  w = bf16[64,3072] parameter(1)
  ROOT r = bf16[331,3072] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "narrow product and its columns' largest elements": """
  x = bf16[2100,8] parameter(0)
  w = bf16[8,1100] parameter(1)
  least = bf16[] constant(-inf)
  p = bf16[2100,1100] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = bf16[1100] reduce(p, least), dimensions={0}, to_apply=narrow_max""",
    "products": """
  x = f32[7,33,65] parameter(0)
  w = f32[7,65,31] parameter(1)
  ROOT r = f32[7,33,31] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}""",
    "convolution": """
  x = f32[2,28,27,32] parameter(0)
  w = f32[3,3,32,100] parameter(1)
  ROOT r = f32[2,28,27,100] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f""",
    "convolution of few features": """
  x = f32[5,13,11,16] parameter(0)
  w = f32[3,3,16,20] parameter(1)
  ROOT r = f32[5,13,11,20] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f""",
    "gradient of few features": """
  x = f32[8,13,11,48] parameter(0)
  g = f32[8,13,11,20] parameter(1)
  ROOT r = f32[3,3,48,20] convolution(x, g), window={size=13x11 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf""",
    "convolution in f64": """
  x = f64[2,13,11,20] parameter(0)
  w = f64[3,3,20,100] parameter(1)
  ROOT r = f64[2,13,11,100] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f""",
    "gradient of a kernel": """
  x = f32[8,13,11,20] parameter(0)
  g = f32[8,13,11,70] parameter(1)
  ROOT r = f32[3,3,20,70] convolution(x, g), window={size=13x11 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf""",
    "convolution by groups": """
  x = f32[2,13,11,70] parameter(0)
  w = f32[3,3,1,70] parameter(1)
  ROOT r = f32[2,13,11,70] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=70""",
    "gradient by an image": """
  y = f32[2,7,6,20] parameter(0)
  w = f32[3,3,100,20] parameter(1)
  ROOT r = f32[2,14,12,100] convolution(y, w), window={size=3x3 pad=1_2x1_2 lhs_dilate=2x2 rhs_reversal=1x1}, dim_labels=b01f_01oi->b01f""",
    "gradient by an image of few features": """
  y = f32[5,7,6,20] parameter(0)
  w = f32[3,3,3,20] parameter(1)
  ROOT r = f32[5,14,12,3] convolution(y, w), window={size=3x3 pad=1_2x1_2 lhs_dilate=2x2 rhs_reversal=1x1}, dim_labels=b01f_01oi->b01f""",
    "gather": """
  x = f32[50,37] parameter(0)
  i = s32[101] parameter(1)
  ROOT r = f32[101,37] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,37}""",
    "sort": """
  x = f32[13,201] parameter(0)
  ROOT r = f32[13,201] sort(x), dimensions={1}, to_apply=less""",
    "product and what is computed of it": """
  x = f32[257,64] parameter(0)
  w = f32[64,131] parameter(1)
  b = f32[131] parameter(2)
  y = f32[257,131] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bs = f32[257,131] broadcast(b), dimensions={1}
  s = f32[257,131] add(y, bs)
  ROOT r = f32[257,131] tanh(s)""",
    "products and their columns' sums": """
  x = f32[7,65,64] parameter(0)
  w = f32[7,64,131] parameter(1)
  y = f32[7,65,131] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  t = f32[7,65,131] tanh(y)
  zero = f32[] constant(0)
  s = f32[7,131] reduce(t, zero), dimensions={1}, to_apply=sum
  ROOT r = (f32[7,131], f32[7,65,131]) tuple(s, y)""",
    "argmax": """
  x = f32[67,131] parameter(0)
  i = s32[67,131] iota(), iota_dimension=1
  least = f32[] constant(-inf)
  first = s32[] constant(0)
  ROOT r = (f32[67], s32[67]) reduce(x, i, least, first), dimensions={1}, to_apply=greater""",
}

_PROGRAM = """HloModule shared
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
max {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}}
narrow_max {{
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT c = bf16[] maximum(a, b)
}}
less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}}
greater {{
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  is = pred[] compare(a, b), direction=GE
  x = f32[] select(is, a, b)
  n = s32[] select(is, i, j)
  ROOT both = (f32[], s32[]) tuple(x, n)
}}
ENTRY main {{{body}
}}
"""


def loaded(text: str, cores: int, monkeypatch: pytest.MonkeyPatch) -> Executable:
    """Return the program loaded in a process with that many cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    module = module_of(text)
    PriorityFusion().run(module)
    executable = build_executable(module)
    executable.load_devices()
    return executable


def shares(executable: Executable) -> int:
    """Rows of the first device that several threads may do."""
    devices = executable._local
    assert isinstance(devices, LoopbackDevices)
    return sum(row.is_share for row in devices.devices[0].table.rows)


#: Products of few rows, which stay whole where BLAS's products keep their bits if rows are cut, but not if columns are.
ROWS_ALONE = (
    set()
    if cut_multiples(PrimitiveType.F32).fast
    else {"wide product", "wide narrow product", "products and their columns' sums"}
)
#: Only vector registers keep the bits of convolutions that are cut by images.
OF_FEW_FEATURES = {"convolution of few features", "gradient of few features"}
NEVER_CUT = ROWS_ALONE | (
    set() if vector_micro_kernel(16) is not None and not has_tile_unit() else OF_FEW_FEATURES
)


@pytest.mark.parametrize("name", KERNELS)
def test_pieces_give_the_bits_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "LEAST_SECONDS", 1e-12)
    text = _PROGRAM.format(body=KERNELS[name])
    alone = loaded(text, 1, monkeypatch)
    inputs = random_inputs(alone.module)
    assert shares(alone) == 0
    whole = alone.run_devices([inputs])
    for cores in (2, 3):
        shared = loaded(text, cores, monkeypatch)
        assert (shares(shared) >= 1) is (name not in NEVER_CUT)
        for _ in range(20):
            for found, expected in zip(shared.run_devices([inputs])[0], whole[0], strict=True):
                np.testing.assert_array_equal(found, expected)


#: One thread does not cut them, the last one because lines of 96 leave too little of it.
WHOLE = {"product of a vector", "convolution", "convolution in f64", "gradient of a kernel"} | (
    OF_FEW_FEATURES | ({"double product"} if ROWS_ALONE else set())
)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("cores", [1, 2])
def test_pieces_between_looks_give_the_bits_of_the_whole(
    name: str, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _PROGRAM.format(body=KERNELS[name])
    whole = loaded(text, 1, monkeypatch)
    inputs = random_inputs(whole.module)
    want = whole.run_devices([inputs])
    monkeypatch.setattr(ProgressPoints, "are_needed", True)
    monkeypatch.setattr(segment, "INTERVAL_SECONDS", 1e-7)
    monkeypatch.setattr(tuning, "PIECE_LEAST_AREA", 64)
    monkeypatch.setattr(tuning, "PIECE_LEAST_COLUMNS", 64)
    cut = loaded(text, cores, monkeypatch)
    may_be_cut = name not in NEVER_CUT and (cores > 1 or name not in WHOLE)
    assert (shares(cut) >= 1) is may_be_cut
    for _ in range(2):
        for found, expected in zip(cut.run_devices([inputs])[0], want[0], strict=True):
            np.testing.assert_array_equal(found, expected)


def cut_in_turn(m: int, k: int, n: int) -> Sequence[pieces.Piece]:
    """A product of these sizes, to be cut into two pieces."""
    f32 = PrimitiveType.F32
    kernel = DotKernel((), m, k, n, f32, f32, f32, f32)
    lhs, rhs, out = (np.empty(dims, np.float32) for dims in ((m, k), (k, n), (m, n)))
    return cut_kernels.cut_in_turn(kernel, KernelArrays((lhs, rhs), (out,)), 2)


@pytest.mark.skipif(bool(ROWS_ALONE), reason="this BLAS keeps no bits where columns are cut")
def test_pieces_of_a_very_wide_product_cover_it() -> None:
    """One strip of columns has more elements than a piece needs."""
    m, n = 64, 4 * tuning.PIECE_LEAST_AREA
    cut = cut_in_turn(m, 4, n)
    assert sum(arrays.results[0].size for _, arrays in cut) == m * n


@pytest.mark.parametrize(("m", "n"), [(0, 4096), (4096, 0), (0, 0)])
def test_an_empty_product_stays_whole(m: int, n: int) -> None:
    """An empty product may read large operands, so that it seems to take long."""
    assert cut_in_turn(m, 64, n) == ()
