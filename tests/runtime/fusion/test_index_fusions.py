"""Gathers and scatters that compute their indices: results, what joins them, and what stays a kernel of its own."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.compile import build_executable, schedule_module
from runtime.executable import Executable
from runtime.fusion.emitters import INDEXED, emitter_of
from runtime.fusion.priority_fusion import PriorityFusion
from runtime.program.records.gather_scatter import GatherKernel, ScatterKernel
from runtime.saved import save_bytes
from runtime.saved_program import load_bytes
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.literal import NDArray
from spmd.machine.named import machine_named
from tests.runtime.fusion.reasons import why_not
from tests.runtime.programs.agreement import kernels_of
from tests.runtime.programs.build import module_of, random_inputs

ADD = """
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
"""
ROWS_GATHER = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}"
ROWS_SCATTER = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f"
#: A negative index counts from the end, as in NumPy.
WRAPPED = """
  zero = s32[] constant(0)
  zeros = s32[9] broadcast(zero), dimensions={}
  n = s32[] constant(6)
  ns = s32[9] broadcast(n), dimensions={}
  negative = pred[9] compare(i, zeros), direction=LT
  moved = s32[9] add(i, ns)
  chosen = s32[9] select(negative, moved, i)
  j = s32[9,1] reshape(chosen)
"""
HEAD = """HloModule indexed{alias}
{functions}
ENTRY main {{
  x = f32[6,4] parameter(0)
  i = {kind}[{dims}] parameter(1)
  u = f32[9,4] parameter(2)
"""


def program(body: str, kind: str = "s32", dims: str = "9", alias: str = "") -> str:
    return HEAD.format(alias=alias, functions=ADD, kind=kind, dims=dims) + body + "}\n"


GATHER = f"  ROOT y = f32[9,4] gather(x, j), {ROWS_GATHER}\n"
SCATTER = f"  ROOT s = f32[6,4] scatter(x, j, u), {ROWS_SCATTER}\n"
#: Rows and columns are wrapped apart and put side by side.
PAIRS = """
  zero = s32[] constant(0)
  zeros = s32[9] broadcast(zero), dimensions={}
  six = s32[] constant(6)
  four = s32[] constant(4)
  sixes = s32[9] broadcast(six), dimensions={}
  fours = s32[9] broadcast(four), dimensions={}
  r0 = s32[9,1] slice(i), slice={[0:9], [0:1]}
  c0 = s32[9,1] slice(i), slice={[0:9], [1:2]}
  r = s32[9] reshape(r0)
  c = s32[9] reshape(c0)
  rn = pred[9] compare(r, zeros), direction=LT
  cn = pred[9] compare(c, zeros), direction=LT
  rm = s32[9] add(r, sixes)
  cm = s32[9] add(c, fours)
  rs = s32[9] select(rn, rm, r)
  cs = s32[9] select(cn, cm, c)
  rv = s32[9,1] reshape(rs)
  cv = s32[9,1] reshape(cs)
  j = s32[9,2] concatenate(rv, cv), dimensions={1}
"""
PAIRS_GATHER = "  ROOT y = f32[9] gather(x, j), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,1}\n"
PAIRS_SCATTER = """  v0 = f32[9,1] slice(u), slice={[0:9], [0:1]}
  v = f32[9] reshape(v0)
  ROOT s = f32[6,4] scatter(x, j, v), update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={1,0}, index_vector_dim=1, to_apply=f
"""
#: Indices beyond the ends become those of the ends.
CLIPPED = """
  low = s32[] constant(0)
  high = s32[] constant(5)
  lows = s32[9] broadcast(low), dimensions={}
  highs = s32[9] broadcast(high), dimensions={}
  chosen = s32[9] clamp(lows, i, highs)
  j = s32[9,1] reshape(chosen)
"""
DONATED = ", input_output_alias={ {}: (0, {}, may-alias) }"


def fused(text: str, *, keep_order: bool = False) -> HloModule:
    module = module_of(text)
    if keep_order:
        module.stage = Stage.SCHEDULED
    schedule_module(module)
    PriorityFusion().run(module)
    return module


def check(text: str) -> Executable:
    """Compare the fused program with the evaluator, for indices inside, negative, at the ends and outside."""
    executable = build_executable(fused(text))
    inputs = around(text)
    wanted = evaluate(module_of(text), *inputs)
    for got, want in zip(executable.run(*inputs), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    return executable


def around(text: str) -> list[NDArray]:
    inputs = random_inputs(module_of(text))
    values = [0, -1, -6, 5, 6, 9, -7, 3, 3, -2, 2, 1, 4, -4, -5, 0, 99, -99]
    inputs[1] = np.resize(np.array(values), inputs[1].shape).astype(inputs[1].dtype)
    return inputs


FUSED = {
    "wrapped gather": (program(WRAPPED + GATHER), GatherKernel),
    "wrapped scatter": (program(WRAPPED + SCATTER), ScatterKernel),
    "wrapped scatter in place": (program(WRAPPED + SCATTER, alias=DONATED), ScatterKernel),
    "clipped gather": (program(CLIPPED + GATHER), GatherKernel),
    "gathered pairs": (program(PAIRS + PAIRS_GATHER, dims="9,2"), GatherKernel),
    "scattered pairs": (program(PAIRS + PAIRS_SCATTER, dims="9,2"), ScatterKernel),
    "wide gather": (
        program(WRAPPED.replace("s32", "s64") + GATHER, kind="s64"),
        GatherKernel,
    ),
    "narrow gather": (
        program(WRAPPED.replace("s32", "s8") + GATHER, kind="s8"),
        GatherKernel,
    ),
}


@pytest.mark.parametrize("name", FUSED)
def test_one_kernel_computes_indices_and_windows(name: str) -> None:
    text, kernel = FUSED[name]
    executable = check(text)
    assert [type(x) for x in kernels_of(executable)] == [kernel]


@pytest.mark.parametrize("name", FUSED)
def test_a_saved_program_computes_the_same(name: str) -> None:
    text, _ = FUSED[name]
    executable = build_executable(fused(text))
    again = load_bytes(save_bytes(executable), trusted=True)
    assert again.program.thunks == executable.program.thunks
    inputs = around(text)
    for got, want in zip(again.run(*inputs), executable.run(*inputs), strict=True):
        assert got.tobytes() == want.tobytes()


def test_all_readers_compute_the_same_indices() -> None:
    """The gradient of a lookup scatters to the rows that the lookup gathered."""
    body = (
        WRAPPED
        + GATHER.replace("ROOT y", "y")
        + SCATTER.replace("ROOT s", "s")
        + "  ROOT t = (f32[9,4], f32[6,4]) tuple(y, s)\n"
    )
    assert {type(x) for x in kernels_of(check(program(body)))} == {GatherKernel, ScatterKernel}


def test_a_batched_gather_of_transposed_indices() -> None:
    text = """HloModule batched
ENTRY main {
  x = f32[3,6,4] parameter(0)
  i = s32[3,5] parameter(1)
  k = s32[5,3] parameter(2)
  t = s32[5,3] transpose(i), dimensions={1,0}
  j = s32[5,3] add(t, k)
  ROOT r = f32[5,3,4] gather(x, j), offset_dims={2}, collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={1}, index_vector_dim=2, slice_sizes={1,1,4}
}
"""
    (kernel,) = kernels_of(check(text))
    assert isinstance(kernel, GatherKernel)
    assert len(kernel.windows.indices.parameters) == 2


APART = {
    "the indices are a result": program(
        WRAPPED + GATHER.replace("ROOT y", "y") + "  ROOT t = (f32[9,4], s32[9]) tuple(y, chosen)\n"
    ),
    "another instruction reads the indices": program(
        WRAPPED
        + GATHER.replace("ROOT y", "y")
        + "  o = s32[9] reverse(chosen), dimensions={0}\n  d = s32[9] multiply(o, chosen)\n"
        + "  ROOT t = (f32[9,4], s32[9]) tuple(y, d)\n"
    ),
    "the indices are floats before": program(
        "  e = f32[9] exponential(i)\n  k = s32[9] convert(e)\n  j = s32[9,1] reshape(k)\n"
        + GATHER,
        kind="f32",
    ),
    "the indices are counted": program(
        "  c = s32[9] iota(), iota_dimension=0\n  k = s32[9] subtract(i, c)\n"
        "  j = s32[9,1] reshape(k)\n" + GATHER
    ),
    "the indices are divided": program(
        "  k = s32[9] divide(i, i)\n  j = s32[9,1] reshape(k)\n" + GATHER
    ),
}


@pytest.mark.parametrize("name", APART)
def test_a_kernel_of_its_own(name: str) -> None:
    text = APART[name]
    assert not any(emitter_of(x) == INDEXED for x in fusions(fused(text)))
    if "divided" not in name:  # a division by zero has no result to compare
        check(text)


def fusions(module: HloModule) -> list[HloInstruction]:
    return [x for x in module.entry.instructions if x.opcode is Opcode.FUSION]


MANY = """HloModule many
ENTRY main {
  x = f32[65536,WIDTH] parameter(0)
  i = s32[262144] parameter(1)
  k = s32[262144] parameter(2)
  a = s32[262144] add(i, k)
  b = s32[262144] xor(a, i)
  c = s32[262144] maximum(b, k)
  j = s32[262144,1] reshape(c)
  ROOT y = f32[262144,WIDTH] gather(x, j), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,WIDTH}
}
"""


@pytest.mark.parametrize(
    ("width", "machine", "count"),
    [(1, "cpu-avx512", 0), (64, "cpu-avx512", 1), (1, "dgx-h200", 1)],
)
def test_indices_of_many_single_elements_are_computed_in_vectors(
    width: int, machine: str, count: int
) -> None:
    """A CPU computes the indices of a gather one by one, but meanwhile moves the elements of longer windows."""
    module = schedule_module(module_of(MANY.replace("WIDTH", str(width))))
    PriorityFusion(machine=machine_named(machine)).run(module)
    assert sum(emitter_of(x) == INDEXED for x in fusions(module)) == count


COMPUTING = (Opcode.FUSION, Opcode.GATHER, Opcode.MULTIPLY)


def test_an_array_that_is_overwritten_before_is_not_read_later() -> None:
    """The parameter i becomes the second result, in place, before the gather runs."""
    body = (
        WRAPPED
        + "  next = s32[9] multiply(i, ns)\n"
        + GATHER.replace("ROOT y", "y")
        + "  ROOT t = (f32[9,4], s32[9]) tuple(y, next)\n"
    )
    text = program(body, alias=", input_output_alias={ {1}: (1, {}, may-alias) }")
    module = fused(text, keep_order=True)
    computing = [x.opcode for x in module.entry.instructions if x.opcode in COMPUTING]
    assert computing == [Opcode.FUSION, Opcode.GATHER]
    inputs = around(text)
    wanted = evaluate(module_of(text), *inputs)
    for got, want in zip(build_executable(module).run(*inputs), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


TABLE_OF_INDICES = """HloModule table

add {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] add(a, b)
}

ENTRY main {
  x = s32[6] parameter(0)
  u = s32[6] parameter(1)
  one = s32[] constant(1)
  ones = s32[6] broadcast(one), dimensions={}
  k = s32[6] add(x, ones)
  j = s32[6,1] reshape(k)
  ROOT s = s32[6] scatter(x, j, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
}
"""


def test_a_scatter_does_not_overwrite_the_array_of_its_indices() -> None:
    donated = TABLE_OF_INDICES.replace(
        "HloModule table", "HloModule table, input_output_alias={ {}: (0, {}, may-alias) }"
    )
    for text in (TABLE_OF_INDICES, donated):
        executable = build_executable(fused(text))
        x, u = np.array([3, -1, 0, 4, 2, -1], np.int32), np.arange(10, 16, dtype=np.int32)
        (want,) = evaluate(module_of(text), x, u)
        np.testing.assert_array_equal(executable.run(x.copy(), u)[0], want)


MOVES_COMPUTED = """HloModule m

g {
  x = f32[6,4] parameter(0)
  i = s32[9] parameter(1)
  n = f32[6,4] negate(x)
  k = s32[9] negate(i)
  j = s32[9,1] reshape(k)
  ROOT y = f32[9,4] gather(n, j), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}
}

ENTRY e {
  x = f32[6,4] parameter(0)
  i = s32[9] parameter(1)
  ROOT f = f32[9,4] fusion(x, i), kind=kLoop, calls=g
}
"""


def test_what_is_refused() -> None:
    assert (
        why_not(module_of(MOVES_COMPUTED).entry.root) == "y moves elements that the kernel computes"
    )
