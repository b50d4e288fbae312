"""Kernels on the emulated GPU beside the processor's own: on the same memory, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import ml_dtypes
import numpy as np
import pytest

from runtime.gpu.codegen import ptx_module  # noqa: F401 - it fills the table of emitters
from runtime.gpu.codegen.emitters import GpuArrays, Sources, sources
from runtime.gpu.codegen.launch import ArgumentKind, GpuTarget, anchored
from runtime.program.kernel import CPU_KERNELS, Action, Kernel, KernelArrays
from runtime.program.strides import StridedView
from spmd.literal import NDArray
from spmd.shape import PrimitiveType
from tests.runtime.gpu.codegen.emulator import run_source

#: A small one, so that small arrays are as much work for it as large ones for others.
SMALL = GpuTarget(multiprocessors=1)


def gpu_arrays(
    arrays: KernelArrays, target: GpuTarget
) -> tuple[GpuArrays, dict[ArgumentKind, list[int]]]:
    """Return the views of the arrays, and the pointers to them."""
    places: dict[ArgumentKind, list[int]] = {}
    views: list[tuple[StridedView, ...]] = []
    for held, group in (
        (ArgumentKind.OPERAND, arrays.operands),
        (ArgumentKind.RESULT, arrays.results),
        (ArgumentKind.SCRATCH, arrays.scratch),
    ):
        found = [
            anchored(
                x.ctypes.data, StridedView(PrimitiveType.from_numpy(x.dtype), x.shape, x.strides)
            )
            for x in group
        ]
        places[held] = [start for start, _ in found]
        views.append(tuple(view for _, view in found))
    return GpuArrays(*views, target), places


def run_emulated(found: Sources, places: dict[ArgumentKind, list[int]]) -> None:
    assert found is not None
    size = max((source.workspace_bytes for source in found), default=0)
    workspace = np.full(size + 32, 0xA5, np.uint8)
    base = workspace.ctypes.data + -workspace.ctypes.data % 16
    pointers = {**places, ArgumentKind.WORKSPACE: [base]}
    for source in found:
        if source.unless_same is not None:
            one, other = (pointers[a.kind][a.number] for a in source.unless_same)
            if one == other:
                continue
        run_source(source, [pointers[a.kind][a.number] for a in source.arguments])
    assert (workspace[base - workspace.ctypes.data + size :] == 0xA5).all(), "beyond the workspace"


def on_gpu(kernel: Kernel, arrays: KernelArrays, target: GpuTarget = SMALL) -> bool:
    """Run ``kernel`` on the emulated GPU, over ``arrays``; False: it has no form there."""
    views, places = gpu_arrays(arrays, target)
    found = sources(kernel, views)
    if found is None:
        return False
    run_emulated(found, places)
    return True


def compare(kernel: Kernel, arrays: KernelArrays, rtol: float | None = None) -> None:
    """Run the kernel on the GPU, then on the processor, and assert equal results.

    Nothing beside the results may be written in the arrays that hold them.
    """
    wholes = [_whole(x) for x in (*arrays.results, *arrays.scratch)]
    before = [x.copy() for x in wholes]
    assert on_gpu(kernel, arrays), "no form for a GPU"
    got = [x.copy() for x in arrays.results]
    outside = [_without(x, arrays.results) for x in wholes[: len(arrays.results)]]
    for x, old in zip(wholes, before, strict=True):
        x[...] = old
    CPU_KERNELS.bind(kernel, arrays)()
    for x, want in zip(got, arrays.results, strict=True):
        close(x, want, str(kernel), rtol)
    for x, around in zip(wholes, outside, strict=False):
        assert _without(x, arrays.results) == around, "written beside the result"


def _whole(x: NDArray) -> NDArray:
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


def _without(whole: NDArray, results: tuple[NDArray, ...]) -> bytes:
    """The bytes of ``whole`` but those of results."""
    saved = whole.copy()
    for x in results:
        x[...] = np.zeros((), x.dtype)
    found = whole.tobytes()
    whole[...] = saved
    return found


def extent(x: NDArray) -> NDArray:
    """The bytes from the first to the last element that an array shows, as an array."""
    if x.size == 0:
        return np.empty(0, np.uint8)
    low, high = np.lib.array_utils.byte_bounds(x)
    return np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * (high - low)).from_address(low))


def close(got: NDArray, want: NDArray, message: str, rtol: float | None = None) -> None:
    """Integers alike; floats by some units of their own type, sums by a few more."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if got.dtype.kind in "iub" or PrimitiveType.from_numpy(got.dtype).is_integer:
        np.testing.assert_array_equal(got, want, err_msg=message)
        return
    eps = float(ml_dtypes.finfo(got.dtype).eps)
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        a, b = got.astype(wide), want.astype(wide)
        finite = np.isfinite(b)
        scale = float(np.max(np.abs(b[finite]), initial=0.0))
        tolerance = eps if rtol is None else max(rtol, eps)
        np.testing.assert_allclose(
            a, b, rtol=4 * tolerance, atol=4 * tolerance * scale, equal_nan=True, err_msg=message
        )


class Compared:
    """Counts of the kinds of kernels that ran, and of those that have no form for a GPU."""

    def __init__(self) -> None:
        self.run: Counter[str] = Counter()
        self.hosted: Counter[str] = Counter()


@contextmanager
def both_ways(target: GpuTarget = SMALL, rtol: float | None = None) -> Iterator[Compared]:
    """Run every kernel of every program on the emulated GPU, then on the processor; both must agree."""
    bind = CPU_KERNELS.bind
    compared = Compared()

    def bind_both(kernel: Kernel, arrays: KernelArrays) -> Action:
        own = bind(kernel, arrays)
        name = type(kernel).__name__
        views, places = gpu_arrays(arrays, target)
        found = sources(kernel, views)
        if found is None:
            compared.hosted[name] += 1
            return own

        def run() -> None:
            compared.run[name] += 1
            touched = [extent(x) for x in (*arrays.operands, *arrays.results, *arrays.scratch)]
            before = [x.copy() for x in touched]
            run_emulated(found, places)
            got = [x.copy() for x in arrays.results]
            for x, old in zip(touched, before, strict=True):
                x[...] = old
            own()
            for n, (x, want) in enumerate(zip(got, arrays.results, strict=True)):
                close(x, want, f"{name} result {n}: {kernel}", rtol)

        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CPU_KERNELS, "bind", bind_both)
        yield compared
