"""The shape each operation gives, and the operands it refuses."""

from __future__ import annotations

import pytest

from spmd.errors import SpmdError
from spmd.hlo import HloInstruction, Opcode
from spmd.ops import OPS, check_instruction, infer_shape
from spmd.text.parser import parse_module

REDUCERS = """
sum { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y) }
both { a = f32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = s32[] parameter(3)
  s = f32[] add(a, c)
  t = s32[] add(b, d)
  ROOT r2 = (f32[], s32[]) tuple(s, t) }
ge { l = f32[] parameter(0)
  m = f32[] parameter(1)
  ROOT g = pred[] compare(l, m), direction=GE }
less { i0 = f32[] parameter(0)
  i1 = f32[] parameter(1)
  j0 = s32[] parameter(2)
  j1 = s32[] parameter(3)
  ROOT lt = pred[] compare(i0, i1), direction=LT }
sqr { v = f32[4] parameter(0)
  ROOT w = f32[4] multiply(v, v) }
"""

OPERANDS = """
  f = f32[] parameter(0)
  i = s32[] parameter(1)
  p = pred[] parameter(2)
  f4 = f32[4] parameter(3)
  w4 = s32[4] parameter(4)
  p4 = pred[4] parameter(5)
  m = f32[4,6] parameter(6)
  n = f32[6,8] parameter(7)
  b3 = f32[2,4,6] parameter(8)
  c4 = c64[4] parameter(9)
  img = f32[2,8,8,3] parameter(10)
  ker = f32[3,3,3,16] parameter(11)
  q4 = s8[4] parameter(12)
  idx = s32[5,1] parameter(13)
  sq = f32[2,6,6] parameter(14)
  e4 = u32[4] parameter(15)
  upd = f32[5,6] parameter(16)
  i42 = s32[4,6] parameter(17)
"""

#: operation without its result shape -> the shape it must be given
SHAPES = {
    "add(f4, f4)": "f32[4]",
    "compare(f4, f4), direction=LT": "pred[4]",
    "select(p, f4, f4)": "f32[4]",
    "select(p4, f4, f4)": "f32[4]",
    "clamp(f, f4, f)": "f32[4]",
    "abs(c4)": "f32[4]",
    "real(c4)": "f32[4]",
    "complex(f4, f4)": "c64[4]",
    "is-finite(f4)": "pred[4]",
    "popcnt(e4)": "u32[4]",
    "transpose(b3), dimensions={2,0,1}": "f32[6,2,4]",
    "reverse(m), dimensions={1}": "f32[4,6]",
    "slice(m), slice={[1:4:2], [0:6]}": "f32[2,6]",
    "dynamic-slice(m, i, i), dynamic_slice_sizes={2,6}": "f32[2,6]",
    "dynamic-update-slice(m, m, i, i)": "f32[4,6]",
    "pad(m, f), padding=1_2x-1_0_1": "f32[7,10]",
    "concatenate(m, m), dimensions={0}": "f32[8,6]",
    "dot(m, n), lhs_contracting_dims={1}, rhs_contracting_dims={0}": "f32[4,8]",
    "dot(b3, n), lhs_contracting_dims={2}, rhs_contracting_dims={0}": "f32[2,4,8]",
    "dot(b3, b3), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}": (
        "f32[2,4,4]"
    ),
    "convolution(img, ker), window={size=3x3 pad=1_1x1_1 stride=2x2}, dim_labels=b01f_01io->b01f": "f32[2,4,4,16]",
    "reduce(m, f), dimensions={1}, to_apply=sum": "f32[4]",
    "reduce(m, i42, f, i), dimensions={0}, to_apply=both": "(f32[6], s32[6])",
    "reduce-window(m, f), window={size=2x3 stride=2x3}, to_apply=sum": "f32[2,2]",
    "gather(m, idx), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
    "slice_sizes={1,6}": "f32[5,6]",
    "scatter(m, idx, upd), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1, to_apply=sum": "f32[4,6]",
    "sort(f4, w4), dimensions={0}, to_apply=less": "(f32[4], s32[4])",
    "topk(m), k=2": "(f32[4,2], s32[4,2])",
    "cholesky(sq), lower=true": "f32[2,6,6]",
    "fft(c4), fft_type=FFT, fft_length={4}": "c64[4]",
    "fft(f4), fft_type=RFFT, fft_length={4}": "c64[3]",
    "tuple(f4, i)": "(f32[4], s32[])",
    "map(f4, f4), dimensions={0}, to_apply=sum": "f32[4]",
    "call(f4), to_apply=sqr": "f32[4]",
    "all-gather(m), dimensions={0}, replica_groups={{0,1},{2,3}}": "f32[8,6]",
    "reduce-scatter(m), dimensions={0}, replica_groups=[2,2]<=[4], to_apply=sum": "f32[2,6]",
    "all-to-all(m), dimensions={0}, replica_groups={{0,1}}": "f32[4,6]",
    "collective-permute(m), source_target_pairs={{0,1}}": "f32[4,6]",
    "all-gather-start(m), dimensions={1}, replica_groups={{0,1}}": "(f32[4,6], f32[4,12])",
    "copy-start(m)": "(f32[4,6], f32[4,6], u32[])",
    "after-all()": "token[]",
    "partition-id()": "u32[]",
}

#: operation with a stated shape -> words of the reason it is refused
REFUSED = {
    "f32[4] add(f4, m)": "one shape",
    "f32[4] add(f4, w4)": "one shape",
    "f32[4] negate(f4, f4)": "takes 1 operands",
    "f32[5] add(f4, f4)": "expected shape f32[4]",
    "s32[4] floor(w4)": "takes floating-point",
    "f32[4] select(f4, f4, f4)": "needs a pred",
    "f32[4] and(f4, f4)": "integers or pred",
    "pred[4] compare(c4, c4), direction=LT": "no order",
    "f32[5,4] reshape(m)": "number of elements",
    "s32[4,6] reshape(m)": "element type",
    "f32[4,4] broadcast(m), dimensions={0,1}": "sizes",
    "f32[4,6,2] broadcast(m), dimensions={0,0}": "distinct",
    "f32[6,4] transpose(m), dimensions={1,1}": "distinct",
    "f32[5,6] slice(m), slice={[0:5], [0:6]}": "does not fit",
    "f32[5,6] dynamic-slice(m, i, i), dynamic_slice_sizes={5,6}": "exceed",
    "f32[2,6] dynamic-slice(m, i), dynamic_slice_sizes={2,6}": "start indices",
    "f32[2,6] dynamic-slice(m, f, f), dynamic_slice_sizes={2,6}": "integer scalar",
    "f32[4] dynamic-update-slice(f4, m, i)": "does not fit",
    "f32[4] pad(f4, i), padding=0_0": "padding value",
    "f32[8,6] concatenate(m, n), dimensions={0}": "cannot concatenate",
    "f32[4,4] dot(m, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}": "contracting sizes differ",
    "f32[4,8] dot(m, n), lhs_contracting_dims={2}, rhs_contracting_dims={0}": "must lie in",
    "f32[2,8,8,16] convolution(img, ker), window={size=2x3}, dim_labels=b01f_01io->b01f": "window dimension 0",
    "f32[4] reduce(m, f), dimensions={2}, to_apply=sum": "must lie in",
    "f32[4] reduce(m, i), dimensions={1}, to_apply=sum": "initial value",
    "(f32[4], s32[4]) reduce(m, f), dimensions={1}, to_apply=both": "reducer",
    "f32[4] sort(f4), dimensions={0}, to_apply=less": "comparator",
    "f32[4] sort(f4), dimensions={0}, to_apply=sum": "comparator",
    "(f32[4,9], s32[4,9]) topk(m), k=9": "does not fit",
    "f32[4,6] cholesky(m)": "square",
    "f32[4] call(m), to_apply=sqr": "parameter 0 must be",
    "f32[3,6] reduce-scatter(m), dimensions={0}, replica_groups={{0,1,2}}, to_apply=sum": "share out",
    "f32[] get-tuple-element(f4), index=0": "tuple shape",
    "s32[2] iota(), iota_dimension=1": "must lie in",
    "f32[4] rng(f, f), distribution=rng_cauchy": "distribution",
    "f32[5,6] gather(m, idx), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0,1}, index_vector_dim=1, "
    "slice_sizes={1,6}": "must have 1 entries",
    "f32[4,6] scatter(m, idx, m), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum": "one window per index",
}


def parse_root(operation: str) -> HloInstruction:
    text = f"HloModule t\n{REDUCERS}\nENTRY e {{{OPERANDS}\n  ROOT r9 = {operation}\n}}\n"
    return parse_module(text).entry.root


@pytest.mark.parametrize("operation", SHAPES)
def test_inferred_shape(operation: str) -> None:
    root = parse_root(f"{SHAPES[operation]} {operation}")
    assert str(infer_shape(root)) == SHAPES[operation]
    check_instruction(root)


@pytest.mark.parametrize("operation", REFUSED)
def test_refused(operation: str) -> None:
    with pytest.raises(SpmdError, match=REFUSED[operation].replace("[", r"\[")) as error:
        check_instruction(parse_root(operation))
    assert "r9 = " in str(error.value)  # names the instruction


def test_every_opcode_is_defined() -> None:
    assert [opcode for opcode in Opcode if opcode not in OPS] == []


def test_free_shapes_are_not_inferred() -> None:
    for operation in (
        "f32[2,12] reshape(m)",
        "f32[2,4,6] broadcast(m), dimensions={1,2}",
        "f32[9] iota(), iota_dimension=0",
    ):
        assert infer_shape(parse_root(operation)) is None


def test_result_type_of_a_product_is_part_of_the_instruction() -> None:
    root = parse_root("s32[] dot(q4, q4), lhs_contracting_dims={0}, rhs_contracting_dims={0}")
    assert str(infer_shape(root)) == "s32[]"
    check_instruction(root)
