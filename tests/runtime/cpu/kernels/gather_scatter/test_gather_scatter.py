"""gather and scatter by native code: forms, types, places out of range and strides, against the evaluator."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from runtime.program.kernel import CPU_KERNELS, KernelArrays
from runtime.program.records.gather_scatter import GatherKernel, IndexedWindows, ScatterKernel
from runtime.program.records.loop import OperandElements
from runtime.program.scalar_program import ScalarProgram
from runtime.program.strides import StridedView
from spmd.literal import NDArray
from spmd.shape import PrimitiveType
from tests.runtime.programs import compiled, module_of, random_inputs
from tests.runtime.programs.agreement import assert_agrees, kernels_of


def check(text: str, inputs: list[NDArray], rtol: float = 0.0) -> None:
    assert_agrees(text, inputs=inputs, rtol=rtol)


def indices_around(dims: tuple[int, ...], kind: str, limit: int = 8) -> NDArray:
    """Places inside, at the edges and outside; the largest value of unsigned types among them."""
    dtype = np.dtype({"s": "int", "u": "uint"}[kind[0]] + kind[1:])
    values = np.random.default_rng(1).integers(0 if kind[0] == "u" else -3, limit, dims)
    indices = values.astype(dtype)
    if indices.size > 3:
        indices.flat[2] = np.iinfo(dtype).max
    return indices


GATHERS = {
    "rows": (
        "f32[6,4]", "[5,1]", "f32[5,4]",
        "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}",
    ),
    "index in no vector": (
        "f32[6,4]", "[5,2]", "f32[4,5,2]",
        "offset_dims={0}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, slice_sizes={1,4}",
    ),
    "blocks": (
        "f32[6,7,3]", "[2,4]", "f32[2,4,3,3]",
        "offset_dims={1,2,3}, collapsed_slice_dims={}, start_index_map={1,0}, index_vector_dim=1, slice_sizes={4,3,3}",
    ),
    "vectors first": (
        "f32[6,7]", "[2,5]", "f32[5,2,3]",
        "offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0,1}, index_vector_dim=0, slice_sizes={2,3}",
    ),
    "batching": (
        "f32[3,6,4]", "[5,3,1]", "f32[5,3,4]",
        "offset_dims={2}, collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={1}, index_vector_dim=2, slice_sizes={1,1,4}",
    ),
    "no start": (
        "f32[3,4]", "[5,0]", "f32[5,3,4]",
        "offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={}, index_vector_dim=1, slice_sizes={3,4}",
    ),
    "nothing": (
        "f32[6,4]", "[0,1]", "f32[0,4]",
        "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}",
    ),
}  # fmt: skip


def gather_text(form: str, kind: str, index: str) -> str:
    x, indices, result, attrs = GATHERS[form]
    x, result = x.replace("f32", kind), result.replace("f32", kind)
    return f"""HloModule gathers
    ENTRY main {{
      x = {x} parameter(0)
      i = {index}{indices} parameter(1)
      ROOT r = {result} gather(x, i), {attrs}
    }}
    """


@pytest.mark.parametrize("form", GATHERS)
@pytest.mark.parametrize(
    ("kind", "index"), [("f32", "s32"), ("c128", "u64"), ("bf16", "u8"), ("s8", "s64")]
)
def test_gather(form: str, kind: str, index: str) -> None:
    text = gather_text(form, kind, index)
    x, indices = random_inputs(module_of(text))
    indices = indices_around(indices.shape, index)
    assert set(map(type, kernels_of(compiled(text)))) == {GatherKernel}
    check(text, [x, indices])


def test_gather_of_views() -> None:
    """A transposed, reversed operand, indices taken from a larger array."""
    text = """HloModule gathers
    ENTRY main {
      p = f32[4,6] parameter(0)
      q = s32[5,3] parameter(1)
      t = f32[6,4] transpose(p), dimensions={1,0}
      x = f32[6,4] reverse(t), dimensions={0,1}
      i = s32[5,1] slice(q), slice={[0:5], [1:2]}
      ROOT r = f32[5,4] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}
    }
    """
    p, _ = random_inputs(module_of(text))
    check(text, [p, indices_around((5, 3), "s32")])


@pytest.mark.parametrize("index", ["s8", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("kind", ["int8", "float32", "float64"])
def test_single_elements(kind: str, index: str) -> None:
    count = 1003
    x = np.arange(60).astype(kind)
    indices = indices_around((count, 1), index, 70)
    memory = np.zeros(count * x.itemsize + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    out = memory[begin : begin + count * x.itemsize].view(kind)
    kind_of_index = PrimitiveType.from_numpy(indices.dtype)
    leaf = OperandElements(1, StridedView(kind_of_index, (count,), (indices.itemsize,)))
    program = ScalarProgram((kind_of_index,), (), (0,))
    windows = IndexedWindows(0, (leaf,), program, ((0, None),), (), ((0, 59),))
    CPU_KERNELS.bind(GatherKernel(windows), KernelArrays((x, indices), (out,)))()
    places = np.clip(indices[:, 0].astype(np.float64), 0, 59).astype(np.int64)
    np.testing.assert_array_equal(out, x[places])


SCATTERS = {
    "rows": (
        "f32[6,4]", "[5,1]", "f32[5,4]",
        "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1",
    ),
    "blocks": (
        "f32[6,7]", "[2,4]", "f32[3,2,4]",
        "update_window_dims={0,1}, inserted_window_dims={}, scatter_dims_to_operand_dims={1,0}, index_vector_dim=0",
    ),
    "elements": (
        "f32[6,7]", "[9,2]", "f32[9]",
        "update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1",
    ),
    "batching": (
        "f32[3,6,4]", "[3,5,1]", "f32[3,5,4]",
        "update_window_dims={2}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0}, index_vector_dim=2",
    ),
    "nothing": (
        "f32[6,4]", "[0,1]", "f32[0,4]",
        "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1",
    ),
}  # fmt: skip


def scatter_text(form: str, kind: str, index: str, root: str, donate: bool = False) -> str:
    x, indices, updates, attrs = SCATTERS[form]
    x, updates = x.replace("f32", kind), updates.replace("f32", kind)
    alias = ", input_output_alias={ {}: (0, {}, may-alias) }" if donate else ""
    return f"""HloModule scatters{alias}
    f {{
      a = {kind}[] parameter(0)
      b = {kind}[] parameter(1)
      ROOT r = {kind}[] {root}
    }}
    ENTRY main {{
      x = {x} parameter(0)
      i = {index}{indices} parameter(1)
      u = {updates} parameter(2)
      ROOT s = {x} scatter(x, i, u), {attrs}, to_apply=f
    }}
    """


@pytest.mark.parametrize("form", SCATTERS)
@pytest.mark.parametrize(
    ("kind", "index", "root"),
    [
        ("f32", "s32", "add(a, b)"),
        ("f32", "s64", "maximum(a, b)"),
        ("f64", "s32", "multiply(a, b)"),
        ("bf16", "s32", "add(a, b)"),
        ("c64", "s32", "add(a, b)"),
        ("s16", "u8", "minimum(a, b)"),
        ("u32", "u32", "xor(a, b)"),
        ("pred", "s32", "or(a, b)"),
        ("f32", "s32", "copy(b)"),
        ("c128", "u64", "copy(b)"),
    ],
)
def test_scatter(form: str, kind: str, index: str, root: str) -> None:
    text = scatter_text(form, kind, index, root)
    x, indices, updates = random_inputs(module_of(text))
    if form == "blocks" and "copy" in root:
        # Windows that overlap in part: HLO does not say which of them stays.
        indices = np.array([[0, 0, 0, 9], [0, 3, 0, 0]], indices.dtype)
    else:
        indices = indices_around(indices.shape, index)
    assert set(map(type, kernels_of(compiled(text)))) == {ScatterKernel}
    check(text, [x, indices, updates], rtol=1e-5 if "add" in root or "mul" in root else 0.0)


def test_scatter_into_a_donated_array() -> None:
    text = scatter_text("rows", "f32", "s32", "add(a, b)", donate=True)
    x, indices, updates = random_inputs(module_of(text))
    check(text, [x, indices_around(indices.shape, "s32"), updates], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "root"),
    [("f32", "subtract(a, b)"), ("s4", "subtract(b, a)"), ("c64", "multiply(a, b)")],
)
def test_other_combiners(kind: str, root: str) -> None:
    text = scatter_text("rows", kind, "s32", root)
    x, indices, updates = random_inputs(module_of(text))
    assert set(map(type, kernels_of(compiled(text)))) == {ScatterKernel}
    check(text, [x, indices_around(indices.shape, "s32"), updates], rtol=1e-5)


def test_updates_come_in_the_order_of_their_indices() -> None:
    text = scatter_text("elements", "f32", "s32", "copy(b)")
    x, indices, updates = random_inputs(module_of(text))
    indices = np.zeros_like(indices)
    assert compiled(text).run(x, indices, updates)[0][0, 0] == updates[-1]


def test_gather_against_a_loop() -> None:
    """Blocks, element by element, from the definition alone."""
    text = gather_text("blocks", "f32", "s32")
    x, indices = random_inputs(module_of(text))
    indices = indices_around(indices.shape, "s32")
    (got,) = compiled(text).run(x, indices)
    for b, i, j, k in itertools.product(range(2), range(4), range(3), range(3)):
        second, first = (
            min(max(int(indices[b, c]), 0), limit) for c, limit in enumerate((7 - 3, 6 - 4))
        )
        assert got[b, i, j, k] == x[first + i, second + j, k]
