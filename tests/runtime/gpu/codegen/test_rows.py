"""Row fusions on a GPU beside the processor's: rows of all lengths, sums along and across neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.executable import Executable
from runtime.gpu.codegen import row_schedule, split_rows
from runtime.gpu.codegen.emitters import GpuArrays, Sources, sources
from runtime.gpu.codegen.launch import GpuTarget
from runtime.program.records.rows import RowKernel
from runtime.program.thunks import KernelThunk
from spmd.shape import PrimitiveType
from tests.runtime.fusion.test_loop_fusions import edge_inputs
from tests.runtime.fusion.test_row_fusions import (
    LAYERNORM,
    REDUCTIONS,
    SHAPES,
    SOFTMAX,
    module_text,
    reduce_text,
    reducer,
)
from tests.runtime.gpu.codegen.assembler import accepted, needs_assembler
from tests.runtime.gpu.codegen.both_ways import SMALL, both_ways
from tests.runtime.gpu.codegen.emulator import needs_contexts
from tests.runtime.programs.build import compiled, random_inputs

P = PrimitiveType
HOPPER = GpuTarget()
REDUCERS = (reducer("maximum", P.F32), reducer("add", P.F32))


def run(
    text: str, *, edges: bool = False, rtol: float = 2e-6, target: GpuTarget = SMALL
) -> Executable:
    """``rtol``: of sums in another order. Rows of a few elements are loops."""
    with both_ways(target, rtol) as compared:
        executable = compiled(text)
        for seed in range(2):
            inputs = (edge_inputs if edges else random_inputs)(executable.module, seed)
            with np.errstate(all="ignore"):
                executable.run(*inputs)
    assert compared.run["RowKernel"] + compared.run["LoopKernel"] == 2
    return executable


pytestmark = needs_contexts


@pytest.mark.parametrize(("opcode", "kind", "init"), REDUCTIONS, ids=str)
@pytest.mark.parametrize("axes", [(1,), (0,)])
def test_kinds(opcode: str, kind: PrimitiveType, init: str, axes: tuple[int, ...]) -> None:
    run(reduce_text(opcode, kind, init, (5, 150), axes), edges=True)
    run(reduce_text(opcode, kind, init, (64, 64), axes), edges=True)


LONG = [
    ((2, 130), (1,)),
    ((2, 3000), (1,)),
    ((2, 20000), (1,)),
    ((130, 2), (0,)),
    ((3000, 34), (0,)),
    ((70, 4, 50), (1,)),
    ((6, 40, 8), (0, 2)),
]


@pytest.mark.parametrize(("dims", "axes"), [*SHAPES, *LONG], ids=str)
def test_shapes(dims: tuple[int, ...], axes: tuple[int, ...]) -> None:
    if 0 in dims:
        with both_ways():
            compiled(reduce_text("add", P.F32, "0.5", dims, axes)).run(*[np.zeros(dims, "f4")] * 2)
        return
    run(reduce_text("add", P.F32, "0.5", dims, axes))
    run(reduce_text("add", P.C64, "(1, 2)", dims, axes).replace("maximum(", "add("))


def softmax(rows: int, length: int) -> str:
    entry = """
  p = f32[5,70] parameter(0)
  ROOT f = f32[5,70] fusion(p), kind=kInput, calls=fused
"""
    text = module_text(SOFTMAX, entry, *REDUCERS)
    return text.replace("5,70", f"{rows},{length}").replace("f32[5]", f"f32[{rows}]")


def layernorm(rows: int, length: int) -> str:
    entry = """
  p = bf16[3,4,70] parameter(0)
  g = f32[70] parameter(1)
  ROOT f = (bf16[3,4,70], f32[3,4,1], f32[12]) fusion(p, g), kind=kInput, calls=fused
"""
    text = module_text(LAYERNORM, entry, REDUCERS[1])
    text = text.replace("3,4", f"{rows},4").replace("f32[12]", f"f32[{4 * rows}]")
    return text.replace("70", str(length))


@pytest.mark.parametrize("length", [2, 3, 8, 32, 70, 256, 1000, 2048, 4099, 16384, 40000])
def test_rows_of_all_lengths(length: int) -> None:
    """A few lanes, a warp or a block compute a row, which is held in registers or computed again."""
    run(softmax(5, length))
    run(layernorm(1, length), rtol=5e-3)


SIBLINGS = """
  p = bf16[33,20] parameter(0)
  q = f32[33,20] convert(p)
  n = f32[33,20] abs(q)
  z = f32[] constant(0)
  a = f32[] parameter(1)
  s = f32[20] reduce(n, z), dimensions={0}, to_apply=add
  m = f32[20] reduce(q, a), dimensions={0}, to_apply=maximum
  both = f32[20] add(s, m)
  ROOT t = (f32[20], f32[33,20], f32[20]) tuple(both, n, m)
"""
SIBLINGS_ENTRY = """
  p = bf16[33,20] parameter(0)
  a = f32[] parameter(1)
  ROOT f = (f32[20], f32[33,20], f32[20]) fusion(p, a), kind=kInput, calls=fused
"""


@pytest.mark.parametrize("length", [2, 7, 64, 300])
@pytest.mark.parametrize("columns", [2, 33, 128, 1024])
def test_columns(length: int, columns: int) -> None:
    """A sum, a maximum and the computed values themselves, of one walk."""
    text = module_text(SIBLINGS, SIBLINGS_ENTRY, *REDUCERS)
    run(text.replace("33,20", f"{length},{columns}").replace("f32[20]", f"f32[{columns}]"))


def test_many_rounds_of_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_schedule, "RESIDENT_THREADS", 512)
    monkeypatch.setattr(row_schedule, "_WAVES", 1)
    run(softmax(300, 40))
    run(softmax(9, 3000))
    run(reduce_text("add", P.F32, "0.5", (9, 20000), (0,)))


SPLIT = [((70000,), (0,)), ((2, 40000), (1,)), ((9000, 40), (0,)), ((3, 700, 6), (1,))]


@pytest.mark.parametrize("kind", [P.F32, P.BF16, P.C64, P.U8])
@pytest.mark.parametrize(("dims", "axes"), SPLIT, ids=str)
def test_few_long_rows(
    dims: tuple[int, ...],
    axes: tuple[int, ...],
    kind: PrimitiveType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parts of a row by several blocks, their totals by a second launch."""
    monkeypatch.setattr(split_rows, "_MOST_BYTES", 0)
    init = "(0.5, 1)" if kind is P.C64 else "1"
    text = reduce_text("add", kind, init, dims, axes)
    if kind is P.C64:
        text = text.replace("maximum(", "add(")
    many = GpuTarget(multiprocessors=64)
    assert len(row_sources(text, many) or ()) == 2
    run(text, target=many, rtol=1e-2 if kind is P.BF16 else 5e-6)


@pytest.mark.parametrize(
    ("rows", "launches"), [(256, 1), (257, 2)], ids=["64 KiB per block", "more"]
)
def test_a_block_reads_few_bytes_in_the_time_of_a_launch(rows: int, launches: int) -> None:
    text = reduce_text("add", P.F32, "1", (rows, 256), (0,))
    assert len(row_sources(text) or ()) == launches
    run(text, target=HOPPER)


def test_what_is_computed_beside_long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_rows, "_MOST_BYTES", 0)
    text = module_text(SIBLINGS, SIBLINGS_ENTRY, *REDUCERS)
    text = text.replace("33,20", "3000,24").replace("f32[20]", "f32[24]")
    many = GpuTarget(multiprocessors=64)
    assert len(row_sources(text, many) or ()) == 2
    run(text, target=many)


# ---- what ptxas says
def row_sources(text: str, target: GpuTarget = HOPPER) -> Sources:
    thunks = compiled(text).program.thunks.thunks
    (thunk,) = [x for x in thunks if isinstance(x, KernelThunk) and isinstance(x.kernel, RowKernel)]
    operands, results = (tuple(x.view for x in own) for own in (thunk.operands, thunk.results))
    return sources(thunk.kernel, GpuArrays(operands, results, (), target))


TEXTS = {
    "softmax": softmax(4096, 1024),
    "softmax, short rows": softmax(4096, 64),
    "softmax, long rows": softmax(64, 50257),
    "layernorm": layernorm(1024, 1024),
    "layernorm, long rows": layernorm(1024, 8192),
    "sums": reduce_text("add", P.F32, "0", (4096, 1024), (1,)),
    "a long sum": reduce_text("add", P.F32, "0", (1 << 24,), (0,)),
    "column sums": reduce_text("add", P.F32, "0", (4096, 1024), (0,)),
    "column sums of bf16": reduce_text("add", P.BF16, "0", (4096, 1024), (0,)),
}


@needs_assembler
@pytest.mark.parametrize("name", TEXTS)
def test_accepted_without_spills(name: str) -> None:
    for found in accepted(row_sources(TEXTS[name])):
        assert found.spilled == 0


def test_a_row_that_fits_is_read_once() -> None:
    (held,) = row_sources(TEXTS["softmax"]) or ()
    assert held.threads == 64
    assert held.ir.count("= load <4 x float>, ptr") == 4
