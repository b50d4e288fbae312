"""Tests of kernels on arrays of odd sizes, types and strides, against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.cpu.kernels.gemm.choose import compute_type
from runtime.program.kernel import CPU_KERNELS, KernelArrays
from runtime.program.records.dot import DotKernel
from runtime.program.records.gather_scatter import GatherKernel
from runtime.program.records.reference import ReferenceKernel
from runtime.program.thunks import KernelThunk, traverse
from spmd.shape import PrimitiveType
from tests.runtime.programs import compiled
from tests.runtime.programs.agreement import assert_agrees, kernels_of

P = PrimitiveType


def check(text: str, *, exact: bool = False) -> None:
    assert_agrees(text, rtol=0 if exact else 1e-5)


DOT = """HloModule dots
ENTRY main {{
  x = {lhs} parameter(0)
  y = {rhs} parameter(1)
  ROOT d = {result} dot(x, y), {dims}
}}
"""


@pytest.mark.parametrize(
    ("lhs", "rhs", "result", "dims"),
    [
        ("f32[5,7]", "f32[7,3]", "f32[5,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("f32[7,5]", "f32[3,7]", "f32[5,3]", "lhs_contracting_dims={0}, rhs_contracting_dims={1}"),
        ("f32[7]", "f32[7]", "f32[]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        ("f32[7,4]", "f32[7]", "f32[4]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        ("f32[3]", "f32[4]", "f32[3,4]", "lhs_contracting_dims={}, rhs_contracting_dims={}"),
        (
            "f32[2,3,4,5]",
            "f32[2,4,6,5]",
            "f32[2,4,3,6]",
            "lhs_batch_dims={0,2}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={3}",
        ),
        (
            "f32[3,4,2,5]",
            "f32[2,5,6]",
            "f32[3,4,6]",
            "lhs_contracting_dims={2,3}, rhs_contracting_dims={0,1}",
        ),
        (
            "f32[4,3,2,5]",
            "f32[5,6,2]",
            "f32[4,3,6]",
            "lhs_contracting_dims={2,3}, rhs_contracting_dims={2,0}",
        ),
        ("f64[5,7]", "f64[7,3]", "f64[5,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("c64[5,7]", "c64[7,3]", "c64[5,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("bf16[5,7]", "f32[7,3]", "f32[5,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("s32[5,7]", "s32[7,3]", "s32[5,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("s8[5,7]", "s8[7,3]", "s32[5,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("f32[0,7]", "f32[7,3]", "f32[0,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("f32[5,0]", "f32[0,3]", "f32[5,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ],
)
def test_dot(lhs: str, rhs: str, result: str, dims: str) -> None:
    check(DOT.format(lhs=lhs, rhs=rhs, result=result, dims=dims))


def test_dot_of_views() -> None:
    """A broadcast and a reversed slice are laid out anew; a transpose is not."""
    text = """HloModule dot_of_views
    ENTRY main {
      x = f32[6,8] parameter(0)
      b = f32[3] parameter(1)
      s = f32[6,4] slice(x), slice={[0:6], [0:8:2]}
      r = f32[6,4] reverse(s), dimensions={1}
      w = f32[4,3] broadcast(b), dimensions={1}
      d = f32[6,3] dot(r, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      t = f32[3,6] transpose(d), dimensions={1,0}
      ROOT e = f32[3,3] dot(t, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    }
    """
    check(text)


def test_dot_converts_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.program.records.dot._BLOCK_ELEMENTS", 64)
    rng = np.random.default_rng(0)
    kernel = DotKernel((2,), 13, 20, 6, P.BF16, P.BF16, P.BF16, P.F32)
    assert kernel.block_rows == 3
    lhs = rng.standard_normal((2, 13, 20)).astype(P.BF16.numpy)
    rhs = rng.standard_normal((2, 20, 6)).astype(P.BF16.numpy)
    out = np.empty((2, 13, 6), P.BF16.numpy)
    scratch = tuple(np.empty(dims, np.float32) for dims in kernel.scratch_dims())
    CPU_KERNELS.bind(kernel, KernelArrays((lhs, rhs), (out,), scratch))()
    want = np.matmul(lhs.astype(np.float32), rhs.astype(np.float32)).astype(P.BF16.numpy)
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize(
    ("types", "depth", "expected"),
    [
        ((P.S8, P.S8, P.S32), 100, P.F32),
        ((P.S8, P.S8, P.S32), 1024, P.F32),
        ((P.S8, P.S8, P.S32), 1025, P.F64),
        ((P.U8, P.S8, P.S32), 1024, P.F64),
        ((P.S8, P.S8, P.S32), 1 << 20, P.S32),
        ((P.S32, P.S32, P.S32), 4, P.S32),
        ((P.S8, P.S8, P.S8), 4, P.S8),
        ((P.S4, P.S4, P.S4), 4, None),
        ((P.BF16, P.F32, P.F32), 8, P.F32),
        ((P.F32, P.F64, P.F64), 8, P.F64),
        ((P.PRED, P.PRED, P.PRED), 8, None),
    ],
)
def test_integers_are_summed_where_they_are_exact(
    types: tuple[P, P, P], depth: int, expected: P | None
) -> None:
    assert compute_type(*types, depth) is expected


REDUCE = """HloModule reduces
f {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT r = {kind}[] {op}(a, b)
}}
ENTRY main {{
  x = {kind}[3,4,5] parameter(0)
  i = {kind}[] parameter(1)
  ROOT r = {kind}[{dims}] reduce(x, i), dimensions={{{axes}}}, to_apply=f
}}
"""


@pytest.mark.parametrize(
    ("axes", "dims"), [("1", "3,5"), ("0,2", "4"), ("0,1,2", ""), ("", "3,4,5")]
)
@pytest.mark.parametrize(
    ("kind", "op"),
    [
        ("f32", "add"),
        ("f32", "maximum"),
        ("f32", "multiply"),
        ("s32", "minimum"),
        ("s32", "xor"),
        ("pred", "or"),
        ("pred", "and"),
        ("f64", "add"),
        ("c64", "add"),
    ],
)
def test_reduce(kind: str, op: str, axes: str, dims: str) -> None:
    check(REDUCE.format(kind=kind, op=op, axes=axes, dims=dims))


@pytest.mark.parametrize(
    ("padding", "dims"),
    [
        ("1_2_0x0_0_0", "6,4"),
        ("-1_2_0x0_-2_0", "4,2"),
        ("0_0_2x1_1_1", "7,9"),
        ("-4_3_1x-1_0_2", "4,9"),
        ("-3_0_0x0_0_0", "0,4"),
        ("3_-3_0x0_0_0", "3,4"),
        ("-1_-1_0x-5_6_1", "1,8"),
        ("5_-8_0x0_0_0", "0,4"),
    ],
)
def test_pad(padding: str, dims: str) -> None:
    text = f"""HloModule pads
    ENTRY main {{
      x = f32[3,4] parameter(0)
      v = f32[] parameter(1)
      ROOT p = f32[{dims}] pad(x, v), padding={padding}
    }}
    """
    check(text, exact=True)


GATHER = """HloModule gathers
ENTRY main {{
  x = f32[5,3,2] parameter(0)
  i = s32[4{tail}] constant({indices})
  r = f32[4,3,2] gather(x, i), offset_dims={{1,2}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,3,2}}
  ROOT t = f32[4,2,3] transpose(r), dimensions={{0,2,1}}
}}
"""


@pytest.mark.parametrize(
    ("tail", "indices"),
    [("", "{0, 4, -7, 9}"), (",1", "{{0}, {4}, {-7}, {9}}"), (",1", "{{2}, {2}, {2}, {2}}")],
)
def test_rows_are_taken_at_clamped_indices(tail: str, indices: str) -> None:
    text = GATHER.format(tail=tail, indices=indices)
    kernels = [
        thunk.kernel
        for thunk in traverse(compiled(text).program.thunks)
        if isinstance(thunk, KernelThunk)
    ]
    assert [type(kernel) for kernel in kernels] == [GatherKernel]
    check(text, exact=True)


SCATTER = """HloModule scatters
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY main {
  p = f32[5,3] parameter(0)
  u = f32[4,3] parameter(1)
  x = f32[5,3] exponential(p)
  i = s32[4,1] constant({{1}, {3}, {1}, {7}})
  ROOT s = f32[5,3] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f
}
"""


def test_scatter_over_its_own_input() -> None:
    executable = compiled(SCATTER)
    where = {value.name: value.slice for value in executable.program.assignment.values}
    assert where["s"] == where["x"]
    check(SCATTER)


@pytest.mark.parametrize("start", [-5, 0, 2, 9])
def test_dynamic_slices_are_clamped(start: int) -> None:
    text = f"""HloModule slices
    ENTRY main {{
      x = f32[6,4] parameter(0)
      u = f32[2,3] parameter(1)
      i = s32[] constant({start})
      z = s32[] constant(1)
      s = f32[3,2] dynamic-slice(x, i, z), dynamic_slice_sizes={{3,2}}
      d = f32[6,4] dynamic-update-slice(x, u, i, z)
      c = f32[9,2] concatenate(s, s, s), dimensions={{0}}
      ROOT t = (f32[3,2], f32[6,4], f32[9,2]) tuple(s, d, c)
    }}
    """
    check(text, exact=True)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ("f32[3,5]", "u8[3,5,4]"),
        ("u8[3,5,4]", "f32[3,5]"),
        ("f64[4]", "f16[4,4]"),
        ("c64[3]", "f32[3,2]"),
        ("u16[2]", "f32[]"),
        ("f32[]", "u16[2]"),
    ],
)
@pytest.mark.parametrize("reverse", [True, False])
def test_bits_of_another_width_are_a_view(x: str, y: str, *, reverse: bool) -> None:
    """The bits are a view where the bytes of the wider type lie side by side.

    A reversed array is copied first.
    """
    rank = x.count(",") + (not x.endswith("[]"))
    turned = f"reverse(p), dimensions={{{','.join(map(str, range(rank)))}}}"
    text = f"""HloModule bits
    ENTRY main {{
      p = {x} parameter(0)
      x = {x} {turned if reverse and rank else "negate(p)"}
      ROOT y = {y} bitcast-convert(x)
    }}
    """
    executable = assert_agrees(text)
    assert not [k for k in kernels_of(executable) if isinstance(k, ReferenceKernel)] or reverse
