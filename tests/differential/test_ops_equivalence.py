"""Per op: the partitioned program equals the unpartitioned one, over random sizes, shardings and meshes.

Each op is a small HLO text with random sizes (uneven ones too); parameters and root get random shardings, parameters'
padding holds nan. Values are small whole numbers, so that sums are exact and results must be equal bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import spmd
from partitioner.spmd_partitioner import partition_module
from spmd.device import IotaTile
from spmd.hlo import HloModule
from spmd.ops.window import WindowDimension
from spmd.shape import ArrayShape, leaves
from spmd.sharding import HloSharding, SubgroupType, TileAssignment
from tests.differential.equivalence import check_partitioned

MESHES = ((2,), (4,), (2, 2), (3,), (4, 2))
PER_MESH = 6

Rng = np.random.Generator
OPS: dict[str, Callable[[Rng], str]] = {}


def op(make: Callable[[Rng], str]) -> Callable[[Rng], str]:
    OPS[make.__name__] = make
    return make


def size(rng: Rng) -> int:
    return int(rng.choice([1, 2, 3, 4, 5, 6, 8, 9]))


def text(*lines: str, extra: str = "") -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule m\n{REDUCERS}{extra}\nENTRY main {{\n{body}\n}}\n"


REDUCERS = """
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }
or { a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT r = pred[] or(a, b) }
last { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] copy(b) }
odd { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] maximum(a, b)
  ROOT r = f32[] add(c, b) }
argmax { v = f32[] parameter(0)
  i = s32[] parameter(1)
  w = f32[] parameter(2)
  j = s32[] parameter(3)
  gt = pred[] compare(v, w), direction=GT
  eq = pred[] compare(v, w), direction=EQ
  lt = pred[] compare(i, j), direction=LT
  tie = pred[] and(eq, lt)
  first = pred[] or(gt, tie)
  x = f32[] select(first, v, w)
  k = s32[] select(first, i, j)
  ROOT t = (f32[], s32[]) tuple(x, k) }
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
less2 { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT }
ge { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE }
"""


# ---- elementwise and leaves
@op
def elementwise(rng: Rng) -> str:
    d = f"[{size(rng)},{size(rng)}]"
    return text(
        f"x = f32{d} parameter(0)",
        f"y = f32{d} parameter(1)",
        "s = f32[] parameter(2)",
        f"z = f32{d} clamp(s, x, y)",
        f"p = pred{d} compare(x, z), direction=LT",
        f"ROOT r = f32{d} select(p, z, y)",
    )


@op
def bitcast_convert(rng: Rng) -> str:
    n, m = size(rng), size(rng)
    return text(f"x = f32[{n},{m}] parameter(0)", f"ROOT r = u8[{n},{m},4] bitcast-convert(x)")


@op
def iota(rng: Rng) -> str:
    n, m = size(rng), size(rng)
    d = int(rng.integers(2))
    return text(
        f"x = s32[{n},{m}] parameter(0)",
        f"i = s32[{n},{m}] iota(), iota_dimension={d}",
        f"ROOT r = s32[{n},{m}] add(x, i)",
    )


@op
def iota_of_small_floats(rng: Rng) -> str:
    """bf16 cannot tell 771 from 772: the count must be made in integers."""
    n = int(rng.integers(700, 1100))
    return text(
        f"x = bf16[{n}] parameter(0)",
        f"i = bf16[{n}] iota(), iota_dimension=0",
        f"ROOT r = bf16[{n}] maximum(x, i)",
    )


@op
def constant(rng: Rng) -> str:
    values = ", ".join(str(v) for v in rng.integers(0, 9, 6))
    return text(
        "x = f32[6] parameter(0)",
        f"c = f32[6] constant({{{values}}})",
        "s = f32[6] constant({2, 2, 2, 2, 2, 2})",
        "y = f32[6] multiply(x, s)",
        "ROOT r = f32[6] add(c, y)",
    )


# ---- dot, convolution
@op
def dot(rng: Rng) -> str:
    b, i, j, k = (size(rng) for _ in range(4))
    return text(
        f"x = f32[{b},{i},{k}] parameter(0)",
        f"y = f32[{k},{b},{j}] parameter(1)",
        f"ROOT r = f32[{b},{i},{j}] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{1}}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={0}",
    )


@op
def convolution(rng: Rng) -> str:
    n, i, o, s = size(rng), size(rng), size(rng), size(rng) + 1
    return text(
        f"x = f32[{n},{s},{i}] parameter(0)",
        f"w = f32[2,{i},{o}] parameter(1)",
        f"ROOT r = f32[{n},{s - 1},{o}] convolution(x, w), window={{size=2}}, dim_labels=b0f_0io->b0f",
    )


@op
def convolution_feature_groups(rng: Rng) -> str:
    g = int(rng.choice([2, 4, 6]))
    n, i, o = size(rng), int(rng.choice([1, 2])), int(rng.choice([1, 2, 3]))
    return text(
        f"x = f32[{n},5,{g * i}] parameter(0)",
        f"w = f32[3,{i},{g * o}] parameter(1)",
        f"ROOT r = f32[{n},5,{g * o}] convolution(x, w), window={{size=3 pad=1_1}}, "
        f"dim_labels=b0f_0io->b0f, feature_group_count={g}",
    )


@op
def convolution_batch_groups(rng: Rng) -> str:
    g = int(rng.choice([2, 4]))
    n, i, o = size(rng), size(rng), int(rng.choice([1, 2, 3]))
    return text(
        f"x = f32[{g * n},4,{i}] parameter(0)",
        f"w = f32[2,{i},{g * o}] parameter(1)",
        f"ROOT r = f32[{n},3,{g * o}] convolution(x, w), window={{size=2}}, "
        f"dim_labels=b0f_0io->b0f, batch_group_count={g}",
    )


@op
def convolution_spatial(rng: Rng) -> str:
    """Long image, short kernel: stride, padding (negative too), dilations, reversal."""
    image, kernel = int(rng.integers(4, 20)), int(rng.integers(1, 4))
    stride, spread, apart = (int(rng.choice([1, 1, 2, 3])) for _ in range(3))
    low, high = int(rng.integers(-1, 4)), int(rng.integers(0, 4))
    reversal = int(rng.integers(2))
    window = WindowDimension(kernel, stride, low, high, spread, apart, bool(reversal))
    out = window.output_size(image)
    if out == 0:
        return convolution_spatial(rng)
    return text(
        f"x = f32[2,{image},2] parameter(0)",
        f"w = f32[{kernel},2,3] parameter(1)",
        f"ROOT r = f32[2,{out},3] convolution(x, w), window={{size={kernel} stride={stride} "
        f"pad={low}_{high} lhs_dilate={spread} rhs_dilate={apart} rhs_reversal={reversal}}}, "
        "dim_labels=b0f_0io->b0f",
    )


@op
def convolution_filter_gradient(rng: Rng) -> str:
    """Image against a long gradient: the spatial dimension is summed over."""
    gradient, kernel, stride = (
        int(rng.integers(4, 12)),
        int(rng.integers(1, 4)),
        int(rng.integers(1, 3)),
    )
    low = int(rng.integers(0, 2))
    image = (gradient - 1) * stride + kernel - low
    return text(
        f"x = f32[3,{image},4] parameter(0)",
        f"g = f32[{gradient},4,2] parameter(1)",
        f"ROOT r = f32[3,{kernel},2] convolution(x, g), window={{size={gradient} pad={low}_0 "
        f"rhs_dilate={stride}}}, dim_labels=b0f_0io->b0f",
    )


@op
def convolution_two_spatial(rng: Rng) -> str:
    a, b = int(rng.integers(3, 10)), int(rng.integers(3, 10))
    return text(
        f"x = f32[2,{a},{b},2] parameter(0)",
        "w = f32[3,3,2,2] parameter(1)",
        f"ROOT r = f32[2,{a},{b},2] convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, "
        "dim_labels=b01f_01io->b01f",
    )


# ---- reductions
@op
def reduce_sum(rng: Rng) -> str:
    a, b, c = size(rng), size(rng), size(rng)
    return text(
        f"x = f32[{a},{b},{c}] parameter(0)",
        "init = f32[] parameter(1)",
        f"ROOT r = f32[{b}] reduce(x, init), dimensions={{0,2}}, to_apply=add",
    )


@op
def reduce_max(rng: Rng) -> str:
    a, b = size(rng), size(rng)
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        "init = f32[] constant(-inf)",
        f"ROOT r = f32[{a}] reduce(x, init), dimensions={{1}}, to_apply=max",
    )


@op
def reduce_any(rng: Rng) -> str:
    a, b = size(rng), size(rng)
    return text(
        f"x = pred[{a},{b}] parameter(0)",
        "init = pred[] constant(false)",
        f"ROOT r = pred[{b}] reduce(x, init), dimensions={{0}}, to_apply=or",
    )


@op
def reduce_unknown(rng: Rng) -> str:
    a, b = size(rng), size(rng)
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        "init = f32[] constant(0)",
        f"ROOT r = f32[{a}] reduce(x, init), dimensions={{1}}, to_apply=odd",
    )


@op
def reduce_argmax(rng: Rng) -> str:
    a, b = size(rng), size(rng)
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"i = s32[{a},{b}] iota(), iota_dimension=1",
        "v0 = f32[] constant(-inf)",
        "i0 = s32[] constant(0)",
        f"r = (f32[{a}], s32[{a}]) reduce(x, i, v0, i0), dimensions={{1}}, to_apply=argmax",
        f"ROOT k = s32[{a}] get-tuple-element(r), index=1",
    )


@op
def reduce_window(rng: Rng) -> str:
    rows, image, span = size(rng), int(rng.integers(4, 20)), int(rng.integers(1, 5))
    stride, apart = int(rng.choice([1, 2, 3])), int(rng.choice([1, 2]))
    low, high = int(rng.integers(0, 3)), int(rng.integers(0, 3))
    out = WindowDimension(span, stride, low, high, 1, apart).output_size(image)
    if out == 0:
        return reduce_window(rng)
    return text(
        f"x = f32[{rows},{image}] parameter(0)",
        "init = f32[] constant(-inf)",
        f"ROOT r = f32[{rows},{out}] reduce-window(x, init), window={{size=1x{span} stride=1x{stride} "
        f"pad=0_0x{low}_{high} rhs_dilate=1x{apart}}}, to_apply=max",
    )


@op
def reduce_window_two_inits(rng: Rng) -> str:
    """Two windows over one operand that pad with different values: each needs a halo of its own."""
    n = int(rng.integers(4, 12))
    return text(
        f"x = f32[{n}] parameter(0)",
        "low = f32[] constant(-100)",
        "zero = f32[] constant(0)",
        f"a = f32[{n}] reduce-window(x, low), window={{size=3 pad=1_1}}, to_apply=max",
        f"b = f32[{n}] reduce-window(x, zero), window={{size=3 pad=1_1}}, to_apply=add",
        f"ROOT r = f32[{n}] subtract(a, b)",
    )


@op
def select_and_scatter(rng: Rng) -> str:
    a, b = size(rng), size(rng)
    return text(
        f"x = f32[{a},{2 * b}] parameter(0)",
        f"s = f32[{a},{b}] parameter(1)",
        "init = f32[] parameter(2)",
        f"ROOT r = f32[{a},{2 * b}] select-and-scatter(x, s, init), window={{size=1x2 stride=1x2}}, "
        "select=ge, scatter=add",
    )


@op
def select_and_scatter_overlapping(rng: Rng) -> str:
    b = size(rng) + 1
    return text(
        f"x = f32[{b}] parameter(0)",
        f"s = f32[{b - 1}] parameter(1)",
        "init = f32[] constant(0)",
        f"ROOT r = f32[{b}] select-and-scatter(x, s, init), window={{size=2}}, select=ge, scatter=add",
    )


# ---- shapes
@op
def reshape(rng: Rng) -> str:
    source, target = [
        ((8, 6), (2, 4, 6)),
        ((4, 6), (24,)),
        ((24,), (4, 6)),
        ((6, 2), (4, 3)),
        ((4, 3, 2), (12, 2)),
        ((1, 9), (9, 1, 1)),
        ((5, 4), (5, 2, 2)),
        ((12, 2), (8, 3)),
        ((2, 6, 3), (4, 9)),
    ][int(rng.integers(9))]
    return text(
        f"x = f32[{','.join(map(str, source))}] parameter(0)",
        f"ROOT r = f32[{','.join(map(str, target))}] reshape(x)",
    )


@op
def transpose(rng: Rng) -> str:
    a, b, c = size(rng), size(rng), size(rng)
    return text(
        f"x = f32[{a},{b},{c}] parameter(0)",
        f"ROOT r = f32[{c},{a},{b}] transpose(x), dimensions={{2,0,1}}",
    )


@op
def broadcast(rng: Rng) -> str:
    a, b, c = size(rng), size(rng), size(rng)
    return text(
        f"x = f32[{a},{c}] parameter(0)",
        f"ROOT r = f32[{a},{b},{c}] broadcast(x), dimensions={{0,2}}",
    )


@op
def reverse(rng: Rng) -> str:
    a, b = size(rng), int(rng.integers(1, 20))
    dims = str(rng.choice(["0", "1", "0,1"]))
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"ROOT r = f32[{a},{b}] reverse(x), dimensions={{{dims}}}",
    )


# ---- slices
@op
def static_slice(rng: Rng) -> str:
    a, b = size(rng), size(rng)
    start = int(rng.integers(b))
    limit = int(rng.integers(start, b)) + 1
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"ROOT r = f32[{a},{limit - start}] slice(x), slice={{[0:{a}], [{start}:{limit}]}}",
    )


@op
def strided_slice(rng: Rng) -> str:
    n, stride, start = int(rng.integers(4, 20)), int(rng.choice([2, 3])), int(rng.integers(0, 4))
    limit = int(rng.integers(start + 1, n + 1))
    part = -(-(limit - start) // stride)
    return text(
        f"x = f32[{n},7] parameter(0)",
        f"ROOT r = f32[{part},5] slice(x), slice={{[{start}:{limit}:{stride}], [1:6]}}",
    )


@op
def pad(rng: Rng) -> str:
    a, b = size(rng), size(rng)
    low, high, inside = (int(rng.integers(*r)) for r in ((-1, 6), (-1, 6), (0, 2)))
    b = b + 2
    out = low + high + b + inside * (b - 1)
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        "p = f32[] parameter(1)",
        f"ROOT r = f32[{a},{out}] pad(x, p), padding=0_0x{low}_{high}_{inside}",
    )


@op
def concatenate(rng: Rng) -> str:
    a, b, c = size(rng), size(rng), size(rng)
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"y = f32[{a},{c}] parameter(1)",
        f"ROOT r = f32[{a},{b + c + b}] concatenate(x, y, x), dimensions={{1}}",
    )


@op
def roll(rng: Rng) -> str:
    n = int(rng.integers(3, 17))
    k = int(rng.integers(1, n))
    return text(
        f"x = f32[{n},2] parameter(0)",
        f"a = f32[{k},2] slice(x), slice={{[{n - k}:{n}], [0:2]}}",
        f"b = f32[{n - k},2] slice(x), slice={{[0:{n - k}], [0:2]}}",
        f"ROOT r = f32[{n},2] concatenate(a, b), dimensions={{0}}",
    )


@op
def edges(rng: Rng) -> str:
    """Pad by repeating both ends, then difference of neighbours."""
    n, m = int(rng.integers(3, 17)), size(rng)
    return text(
        f"x = f32[{n},{m}] parameter(0)",
        f"a = f32[1,{m}] slice(x), slice={{[0:1], [0:{m}]}}",
        f"b = f32[1,{m}] slice(x), slice={{[{n - 1}:{n}], [0:{m}]}}",
        f"p = f32[{n + 2},{m}] concatenate(a, x, b), dimensions={{0}}",
        f"u = f32[{n},{m}] slice(p), slice={{[0:{n}], [0:{m}]}}",
        f"v = f32[{n},{m}] slice(p), slice={{[2:{n + 2}], [0:{m}]}}",
        f"ROOT r = f32[{n},{m}] subtract(u, v)",
    )


@op
def dynamic_slice(rng: Rng) -> str:
    a, b = size(rng), size(rng)
    u, v = int(rng.integers(1, a + 1)), int(rng.integers(1, b + 1))
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        "i = s32[] parameter(1)",
        "j = s32[] parameter(2)",
        f"ROOT r = f32[{u},{v}] dynamic-slice(x, i, j), dynamic_slice_sizes={{{u},{v}}}",
    )


@op
def dynamic_update_slice(rng: Rng) -> str:
    a, b = size(rng), size(rng)
    u, v = int(rng.integers(1, a + 1)), int(rng.integers(1, b + 1))
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"u = f32[{u},{v}] parameter(1)",
        "i = s32[] parameter(2)",
        "j = s32[] parameter(3)",
        f"ROOT r = f32[{a},{b}] dynamic-update-slice(x, u, i, j)",
    )


# ---- gather, scatter
@op
def take_rows(rng: Rng) -> str:
    v, d, b, s = size(rng), size(rng), size(rng), size(rng)
    return text(
        f"x = f32[{v},{d}] parameter(0)",
        f"i = s32[{b},{s},1] parameter(1)",
        f"ROOT r = f32[{b},{s},{d}] gather(x, i), offset_dims={{2}}, collapsed_slice_dims={{0}}, "
        f"start_index_map={{0}}, index_vector_dim=2, slice_sizes={{1,{d}}}",
    )


@op
def gather_points(rng: Rng) -> str:
    a, b, n = size(rng), size(rng), size(rng)
    kind = str(rng.choice(["s32", "u8", "s64", "u32"]))
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"i = {kind}[2,{n}] parameter(1)",
        f"ROOT r = f32[{n}] gather(x, i), offset_dims={{}}, collapsed_slice_dims={{0,1}}, "
        "start_index_map={1,0}, index_vector_dim=0, slice_sizes={1,1}",
    )


@op
def gather_windows(rng: Rng) -> str:
    a, b, n = size(rng), size(rng) + 2, size(rng)
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"i = s32[{n}] parameter(1)",
        f"ROOT r = f32[{a},{n},2] gather(x, i), offset_dims={{0,2}}, collapsed_slice_dims={{}}, "
        f"start_index_map={{1}}, index_vector_dim=1, slice_sizes={{{a},2}}",
    )


@op
def take_along_axis(rng: Rng) -> str:
    b, v, k = size(rng), size(rng), size(rng)
    return text(
        f"x = f32[{b},{v}] parameter(0)",
        f"i = s32[{b},{k},1] parameter(1)",
        f"ROOT r = f32[{b},{k}] gather(x, i), offset_dims={{}}, collapsed_slice_dims={{1}}, "
        "start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, "
        "index_vector_dim=2, slice_sizes={1,1}",
    )


def scatter_rows(rng: Rng, combiner: str) -> str:
    v, d, b = size(rng), size(rng), size(rng)
    return text(
        f"x = f32[{v},{d}] parameter(0)",
        f"i = s32[{b},1] parameter(1)",
        f"u = f32[{b},{d}] parameter(2)",
        f"ROOT r = f32[{v},{d}] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}}, "
        f"scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply={combiner}",
    )


@op
def scatter_add(rng: Rng) -> str:
    return scatter_rows(rng, "add")


@op
def scatter_max(rng: Rng) -> str:
    return scatter_rows(rng, "max")


@op
def scatter_assign(rng: Rng) -> str:
    return scatter_rows(rng, "last")


@op
def scatter_batched(rng: Rng) -> str:
    b, v, k = size(rng), size(rng), size(rng)
    return text(
        f"x = f32[{b},{v}] parameter(0)",
        f"i = s32[{b},{k},1] parameter(1)",
        f"u = f32[{b},{k}] parameter(2)",
        f"ROOT r = f32[{b},{v}] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{1}}, "
        "scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0}, "
        "index_vector_dim=2, to_apply=add",
    )


# ---- the rest
@op
def sort(rng: Rng) -> str:
    a, b = size(rng), size(rng)
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"y = f32[{a},{b}] parameter(1)",
        f"r = (f32[{a},{b}], f32[{a},{b}]) sort(x, y), dimensions={{1}}, is_stable=true, to_apply=less2",
        f"ROOT k = f32[{a},{b}] get-tuple-element(r), index=1",
    )


@op
def topk(rng: Rng) -> str:
    """Few different values: most choices are between equals."""
    a, b = size(rng), int(rng.integers(2, 20))
    k = int(rng.integers(1, min(b, 6) + 1))
    largest = str(bool(rng.integers(2))).lower()
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"ROOT r = (f32[{a},{k}], s32[{a},{k}]) topk(x), k={k}, largest={largest}",
    )


@op
def fft(rng: Rng) -> str:
    a, b = size(rng), size(rng)
    return text(
        f"x = c64[{a},{b},4] parameter(0)",
        f"ROOT r = c64[{a},{b},4] fft(x), fft_type=FFT, fft_length={{4}}",
    )


@op
def triangular_solve(rng: Rng) -> str:
    a, b = size(rng), size(rng)
    return text(
        "one = f32[] constant(1)",
        f"e = f32[{a},2,2] broadcast(one), dimensions={{}}",
        f"x = f32[{a},2,{b}] parameter(0)",
        f"ROOT r = f32[{a},2,{b}] triangular-solve(e, x), left_side=true, lower=true, "
        "unit_diagonal=true, transpose_a=NO_TRANSPOSE",
    )


@op
def rng_bits(rng: Rng) -> str:
    a, b = size(rng), size(rng)
    return text(
        "s = u64[2] parameter(0)",
        f"g = (u64[2], u32[{a},{b}]) rng-bit-generator(s), algorithm=rng_three_fry",
        f"ROOT r = u32[{a},{b}] get-tuple-element(g), index=1",
    )


@op
def opt_barrier(rng: Rng) -> str:
    a, b = size(rng), size(rng)
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"y = f32[{b}] parameter(1)",
        f"t = (f32[{a},{b}], f32[{b}]) tuple(x, y)",
        f"o = (f32[{a},{b}], f32[{b}]) opt-barrier(t)",
        f"u = f32[{a},{b}] get-tuple-element(o), index=0",
        f"v = f32[{b}] get-tuple-element(o), index=1",
        f"w = f32[{a},{b}] broadcast(v), dimensions={{1}}",
        f"ROOT r = f32[{a},{b}] add(u, w)",
    )


# ---- shardings, values
def random_sharding(
    rng: Rng, mesh: tuple[int, ...], dims: tuple[int, ...], *, crowded: bool = False
) -> HloSharding:
    """Each mesh axis splits one dimension or none; only ``crowded`` ones have more shards than elements."""
    split: list[list[int]] = [[] for _ in dims]
    shards = [1] * len(dims)
    rest = []
    for axis in rng.permutation(len(mesh)).tolist():
        d = int(rng.integers(-1, len(dims)))
        if d >= 0 and (crowded or shards[d] * mesh[axis] <= dims[d]):
            split[d].append(axis)
            shards[d] *= mesh[axis]
        else:
            rest.append(axis)
    if all(n == 1 for n in shards):
        return HloSharding.replicated()
    order = [axis for axes in split for axis in axes] + sorted(rest)
    tail = math.prod(mesh[axis] for axis in rest)
    tile = (*shards, tail) if tail > 1 else tuple(shards)
    kinds = (SubgroupType.REPLICATED,) if tail > 1 else ()
    return HloSharding.tiled(TileAssignment(IotaTile(tile, mesh, tuple(order))), kinds)


def annotate(module: HloModule, rng: Rng, mesh: tuple[int, ...], *, crowded: bool = False) -> None:
    for parameter in module.entry.parameters:
        parameter.sharding = random_sharding(rng, mesh, parameter.dims, crowded=crowded)
    root = module.entry.root
    if rng.random() < 0.7:
        parts = tuple(
            random_sharding(rng, mesh, shape.dims, crowded=crowded)
            for _, shape in leaves(root.shape)
            if isinstance(shape, ArrayShape)
        )
        root.sharding = (
            parts[0] if isinstance(root.shape, ArrayShape) else HloSharding.tuple_of(parts)
        )


def random_array(rng: Rng, shape: ArrayShape) -> np.ndarray[Any, np.dtype[Any]]:
    """Small whole numbers; integers (indices) also a little out of range."""
    low = -3 if shape.element_type.is_signed_integer or shape.element_type.is_floating else 0
    values = rng.integers(low, 12, shape.dims)
    return np.asarray(values % 2 == 0 if shape.element_type.value == "pred" else values).astype(
        shape.element_type.numpy
    )


#: Ops that only move elements do so for every type.
MOVING = [
    "broadcast",
    "concatenate",
    "dynamic_slice",
    "dynamic_update_slice",
    "gather_points",
    "gather_windows",
    "pad",
    "reshape",
    "reverse",
    "roll",
    "static_slice",
    "strided_slice",
    "take_along_axis",
    "take_rows",
    "transpose",
]
TYPES = ("pred", "u8", "s64", "bf16", "c64")


@pytest.mark.parametrize("element_type", TYPES)
@pytest.mark.parametrize("name", MOVING)
def test_elements_of_any_type_are_moved(name: str, element_type: str) -> None:
    for trial, mesh in enumerate(MESHES):
        check_one(name, mesh, 100 + trial, element_type)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_partitioned_op_equals_the_whole_one(name: str, mesh: tuple[int, ...]) -> None:
    for trial in range(PER_MESH):
        check_one(name, mesh, trial)


@pytest.mark.parametrize("mesh", [(4,), (2, 2)], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_fewer_elements_than_shards(
    name: str, mesh: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some devices hold padding alone."""
    monkeypatch.setitem(globals(), "size", lambda rng: int(rng.choice([1, 2, 3])))
    check_one(name, mesh, 200, crowded=True)


#: Their generators choose an index or a part of each dimension.
NEED_ELEMENTS = {
    "dynamic_slice",
    "dynamic_update_slice",
    "gather_points",
    "static_slice",
    "take_along_axis",
    "take_rows",
}


@pytest.mark.parametrize("name", [name for name in OPS if name not in NEED_ELEMENTS])
def test_empty_dimensions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "size", lambda rng: int(rng.choice([0, 1, 4])))
    check_one(name, (2, 2), 300, crowded=True)


def check_one(
    name: str,
    mesh: tuple[int, ...],
    trial: int,
    element_type: str = "f32",
    *,
    crowded: bool = False,
) -> None:
    rng = np.random.default_rng([sum(name.encode()), *mesh, trial])
    reducers, entry = OPS[name](rng).split("\nENTRY", 1)
    module = spmd.parse(f"{reducers}\nENTRY{entry.replace('f32', element_type)}")
    annotate(module, rng, mesh, crowded=crowded)
    devices = math.prod(mesh)
    inputs = [random_array(rng, p.array_shape) for p in module.entry.parameters]
    partitioned = partition_module(module, devices)
    check_partitioned(module, partitioned, devices, inputs)
