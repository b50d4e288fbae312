"""Tests of the innermost loops of sums: which run along rows, and that cuts keep the bits."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from runtime.cpu.sharing.cut_kernels import cut_into
from runtime.program.kernel import CPU_KERNELS, KernelArrays
from runtime.program.records.rows import RowKernel
from runtime.program.thunks import KernelThunk, traverse

ADD = "add {\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n  ROOT c = f32[] add(p, q)\n}\n\n"


def program(dims: tuple[int, ...], axis: int) -> spmd.Executable:
    shape, kept = (f"f32[{','.join(map(str, d))}]" for d in (dims, dims[:axis] + dims[axis + 1 :]))
    text = (
        f"HloModule m\n\n{ADD}ENTRY e {{\n  x = {shape} parameter(0)\n"
        f"  y = {shape} exponential(x)\n  z = f32[] constant(0)\n"
        f"  ROOT s = {kept} reduce(y, z), dimensions={{{axis}}}, to_apply=add\n}}\n"
    )
    return spmd.compile(spmd.parse(text), 1)


def row_kernel(executable: spmd.Executable) -> RowKernel:
    thunks = traverse(executable.program.thunks)
    kernels = [t.kernel for t in thunks if isinstance(t, KernelThunk)]
    (found,) = (kernel for kernel in kernels if isinstance(kernel, RowKernel))
    return found


@pytest.mark.parametrize(
    ("dims", "axis", "along_rows"),
    [
        ((100, 3), 0, True),
        ((40, 33, 2), 1, True),
        ((5, 16, 8), 1, True),
        ((7, 300, 1, 4), 1, True),
        ((100, 9), 0, False),  # a vector of neighbours
        ((15, 3), 0, False),  # short rows
        ((200_000, 5), 0, False),  # beyond the caches
        ((200_000, 4), 0, True),
        ((64, 40, 3), 0, False),  # elements of a row lie far apart
        ((3, 100), 1, True),  # rows lie one after the other
        ((100, 5), 1, True),
        ((9, 50, 16, 2), 0, False),
        ((9, 3, 300, 1, 2), 0, False),
        ((5, 7, 17), 0, False),
    ],
)
def test_where_the_innermost_loop_runs(dims: tuple[int, ...], axis: int, along_rows: bool) -> None:
    executable = program(dims, axis)
    assert row_kernel(executable).along_rows == along_rows
    x = np.random.default_rng(3).standard_normal(dims).astype(np.float32)
    (got,) = executable.run(x)
    np.testing.assert_allclose(np.asarray(got), np.exp(x).sum(axis), rtol=2e-5)


@pytest.mark.parametrize(
    ("dims", "axis"), [((64, 20, 3), 1), ((128, 700, 8), 1), ((50, 256, 3), 0), ((5000, 5), 1)]
)
@pytest.mark.parametrize("count", [2, 3, 5])
def test_pieces_have_the_bits_of_the_whole(dims: tuple[int, ...], axis: int, count: int) -> None:
    kernel = row_kernel(program(dims, axis))
    x = np.random.default_rng(4).standard_normal(dims).astype(np.float32)
    results = [np.zeros(dims[:axis] + dims[axis + 1 :], np.float32) for _ in range(2)]
    whole, cut = (KernelArrays((x,), (result,)) for result in results)
    CPU_KERNELS.bind(kernel, whole)()
    pieces = cut_into(kernel, cut, count)
    assert len(pieces) > 1
    for piece in pieces:
        CPU_KERNELS.bind(*piece)()
    np.testing.assert_array_equal(results[1], results[0])
