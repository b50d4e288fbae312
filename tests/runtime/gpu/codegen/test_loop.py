"""Tests of loops over elements on a GPU: the code gives the processor's results, and ptxas accepts its PTX."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from runtime.codegen.elements.small_floats import FORMATS
from runtime.codegen.ir.element_operations import has_operation
from runtime.fusion.refusal import NoEmitterError
from runtime.gpu.codegen import loop
from runtime.gpu.codegen.emitters import GpuArrays, sources
from runtime.gpu.codegen.launch import GpuTarget
from runtime.program.kernel import CPU_KERNELS, KernelArrays
from runtime.program.records.loop import LoopKernel, OperandElements, operation_loop
from runtime.program.scalar_program import ElementSignature, ScalarOp, ScalarProgram
from runtime.program.strides import StridedView
from spmd.errors import CheckFailed
from spmd.hlo import Opcode
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.cpu.kernels.loop.element_signatures import SIGNATURES, values
from tests.runtime.cpu.kernels.loop.test_native_elementwise import edges
from tests.runtime.fusion.random_fusions import random_fusion
from tests.runtime.fusion.test_loop_fusions import edge_inputs
from tests.runtime.gpu.codegen.assembler import accepted, needs_assembler
from tests.runtime.gpu.codegen.both_ways import (
    Compared,
    both_ways,
    close,
    on_gpu,
)
from tests.runtime.gpu.codegen.emulator import needs_contexts
from tests.runtime.programs.build import compiled

P = PrimitiveType


@pytest.fixture
def _few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use few threads, so that small arrays take several blocks, and neighbours read them."""
    monkeypatch.setattr(loop, "THREADS", 32)
    monkeypatch.setattr(loop, "RESIDENT_THREADS", 32)


def dense(kind: PrimitiveType, *dims: int) -> StridedView:
    return StridedView.dense(ArrayShape(kind, dims))


@needs_contexts
@pytest.mark.usefixtures("_few_threads")
def test_random_fusions() -> None:
    """Fusions have views, broadcasts, transposes, dynamic slices, concatenations and pads, in all element types."""
    total = Compared()
    for seed in range(120):
        with both_ways() as compared:
            try:
                executable = compiled(random_fusion(seed))
            except (NoEmitterError, CheckFailed):
                continue
            with np.errstate(all="ignore"):
                executable.run(*edge_inputs(executable.module, seed))
        total.run += compared.run
    assert total.run["LoopKernel"] > 60
    assert total.run["PiecesKernel"] > 10


def all_of(opcode: Opcode) -> LoopKernel:
    """Return one loop with every operation of an opcode, on operands of each type."""
    signatures = [
        signature
        for form in SIGNATURES
        if form[0] is opcode and has_operation(signature := ElementSignature(*form))
    ]
    places: dict[tuple[PrimitiveType, int], int] = {}
    for signature in signatures:
        for position, kind in enumerate(signature.operands):
            places.setdefault((kind, position), len(places))
    steps = tuple(
        ScalarOp(s, tuple(places[kind, n] for n, kind in enumerate(s.operands))) for s in signatures
    )
    count = len(places)
    program = ScalarProgram(
        tuple(kind for kind, _ in places), steps, tuple(range(count, count + len(steps)))
    )
    return LoopKernel(
        (5, 7),
        program,
        tuple(OperandElements(n, dense(kind, 5, 7)) for n, kind in enumerate(program.parameters)),
        tuple(dense(s.result, 5, 7) for s in signatures),
    )


OPCODES = list(
    dict.fromkeys(form[0] for form in SIGNATURES if has_operation(ElementSignature(*form)))
)


@needs_contexts
@pytest.mark.parametrize("opcode", OPCODES)
def test_element_operations(opcode: Opcode) -> None:
    kernel = all_of(opcode)
    kinds = kernel.program.parameters
    operands = tuple(of_kind(kind, seed) for seed, kind in enumerate(kinds))
    results = tuple(np.zeros((5, 7), view.element_type.numpy) for view in kernel.results)
    wanted = tuple(np.zeros_like(x) for x in results)
    CPU_KERNELS.bind(kernel, KernelArrays(operands, wanted))()
    assert on_gpu(kernel, KernelArrays(operands, results))
    for step, got, want in zip(kernel.program.steps, results, wanted, strict=True):
        assert isinstance(step, ScalarOp)
        close(got, want, str(step.signature))


def of_kind(kind: PrimitiveType, seed: int) -> np.ndarray:
    """Return edge values of a type."""
    if kind.is_complex:
        part = P.F32 if kind is P.C64 else P.F64
        x = np.zeros((5, 7), kind.numpy)
        x.real, x.imag = edges(part, seed), edges(part, seed + 1)
        return x
    return values(kind, seed) if kind.is_integer and kind.bits < 8 else edges(kind, seed)


def small_conversions() -> LoopKernel:
    """Return a loop that converts floats of 8 bits and fewer from f32, and back."""
    small = [kind for kind in PrimitiveType if kind in FORMATS or kind is P.F8E8M0FNU]
    steps: list[ScalarOp] = []
    for number, kind in enumerate(small, 1):
        steps.append(ScalarOp(ElementSignature(Opcode.CONVERT, (P.F32,), kind), (0,)))
        steps.append(ScalarOp(ElementSignature(Opcode.CONVERT, (kind,), P.F32), (number,)))
    kinds = (P.F32, *small)
    results = range(len(kinds), len(kinds) + len(steps))
    return LoopKernel(
        (1 << 12,),
        ScalarProgram(kinds, tuple(steps), tuple(results)),
        tuple(OperandElements(n, dense(kind, 1 << 12)) for n, kind in enumerate(kinds)),
        tuple(dense(step.signature.result, 1 << 12) for step in steps),
    )


@needs_contexts
def test_conversions_of_small_floats() -> None:
    kernel = small_conversions()
    rng = np.random.default_rng(0)
    floats = (rng.standard_normal(1 << 12) * 2.0 ** rng.integers(-20, 20, 1 << 12)).astype("f4")
    floats[:4] = [np.nan, np.inf, -np.inf, -0.0]
    codes = [
        (np.arange(1 << 12) % (1 << kind.bits)).astype(np.uint8).view(kind.numpy)
        for kind in kernel.program.parameters[1:]
    ]
    results = tuple(np.zeros(1 << 12, view.element_type.numpy) for view in kernel.results)
    wanted = tuple(np.zeros_like(x) for x in results)
    CPU_KERNELS.bind(kernel, KernelArrays((floats, *codes), wanted))()
    assert on_gpu(kernel, KernelArrays((floats, *codes), results))
    for got, want in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(got.astype("f4"), want.astype("f4"))


@needs_assembler
@pytest.mark.parametrize(
    "kernel", [*map(all_of, OPCODES), small_conversions()], ids=[*OPCODES, "f8"]
)
def test_element_operations_are_accepted(kernel: LoopKernel) -> None:
    operands = tuple(leaf.view for leaf in kernel.leaves if isinstance(leaf, OperandElements))
    accepted(sources(kernel, GpuArrays(operands, kernel.results, (), GpuTarget())), "sm_90")


# ---- neighbours that one instruction moves
def sum_loop(*views: StridedView) -> LoopKernel:
    """Return a loop that adds operands laid out as the first two views into a result laid out as the last one."""
    kind = views[-1].element_type
    opcode = Opcode.OR if kind is P.PRED else Opcode.ADD
    return operation_loop(ElementSignature(opcode, (kind, kind), kind), views[:-1], views[-1])


def sum_of(arrays: KernelArrays) -> LoopKernel:
    return sum_loop(
        *(
            StridedView(PrimitiveType.from_numpy(x.dtype), x.shape, x.strides)
            for x in (*arrays.operands, *arrays.results)
        )
    )


KINDS = (P.PRED, P.S4, P.U8, P.S16, P.F16, P.BF16, P.F32, P.S64, P.F64, P.C64, P.C128)
#: Elements between a multiple of 16 bytes and the first element.
STARTS = (0, 1, 2, 3, 4)


@needs_contexts
@pytest.mark.usefixtures("_few_threads")
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("start", STARTS)
def test_neighbours(kind: PrimitiveType, start: int) -> None:
    """Uneven counts begin at any element; nothing before or after the result is written."""
    for count in (1, 31, 257, 512, 2051):
        rng = np.random.default_rng(count)
        whole = rng.integers(0, 2, (3, count + 32)).astype(kind.numpy)
        a, b, out = whole[:, 8 + start : 8 + start + count]
        want = whole.copy()
        wanted = KernelArrays((a, b), (want[2, 8 + start :][:count],))
        CPU_KERNELS.bind(sum_of(wanted), wanted)()
        arrays = KernelArrays((a, b), (out,))
        assert on_gpu(sum_of(arrays), arrays)
        np.testing.assert_array_equal(whole.astype("c16"), want.astype("c16"))


SEEN = {
    "rows": lambda x: x[3:20, 2:18],
    "every other row": lambda x: x[3:20:2, :16],
    "every other": lambda x: x[:, ::2],
    "reversed": lambda x: x[::-1, ::-1],
    "a row": lambda x: np.broadcast_to(x[:1, :16], (9, 16)),
    "a column": lambda x: np.broadcast_to(x[:9, :1], (9, 16)),
    "transposed": lambda x: x.T,
    "an element": lambda x: np.broadcast_to(x[1, 1], (9, 16)),
}


@needs_contexts
@pytest.mark.usefixtures("_few_threads")
@pytest.mark.parametrize(("one", "other"), list(itertools.product(SEEN, SEEN)))
def test_strides(one: str, other: str) -> None:
    x, y = np.random.default_rng(0).integers(0, 99, (2, 24, 24)).astype(np.int16)
    a, b = SEEN[one](x), SEEN[other](y)
    rows, columns = (min(sizes) for sizes in zip(a.shape, b.shape, strict=True))
    a, b = a[:rows, :columns], b[:rows, :columns]
    whole = np.zeros((rows + 2, columns + 5), np.int16)
    arrays = KernelArrays((a, b), (whole[1 : rows + 1, 3 : columns + 3],))
    assert on_gpu(sum_of(arrays), arrays)
    want = np.pad(a + b, ((1, 1), (3, 2)))
    np.testing.assert_array_equal(whole, want)


@needs_contexts
def test_in_place() -> None:
    x = np.arange(5000, dtype=np.int16)
    want = x + x
    arrays = KernelArrays((x, x), (x,))
    assert on_gpu(sum_of(arrays), arrays)
    np.testing.assert_array_equal(x, want)
