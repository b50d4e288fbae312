"""Programs that amplify rounding, each with a form that sums in another order and forms that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from launch.data.inputs import Array

_PLUS = "plus { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }"

#: The gradient of the first 32 parameters is 0 but for rounding; the step is the gradient over its size, as Adam's.
ADAM = f"""HloModule adam, num_partitions=2
{_PLUS}
ENTRY main {{
  x = f32[64,96] parameter(0), sharding={{devices=[1,2]<=[2]}}
  p = f32[64] parameter(1)
  zero = f32[] constant(0)
  turned = f32[64,96] reverse(x), dimensions={{}}
  sum = f32[64] reduce(turned, zero), dimensions={{1}}, to_apply=plus
  k1 = f32[] constant(96)
  n = f32[64] broadcast(k1), dimensions={{}}
  mean = f32[64] divide(sum, n)
  wide = f32[64,96] broadcast(mean), dimensions={{0}}
  centred = f32[64,96] subtract(turned, wide)
  noise = f32[64] reduce(centred, zero), dimensions={{1}}, to_apply=plus
  at = s32[64] iota(), iota_dimension=0
  k2 = s32[] constant(32)
  half = s32[64] broadcast(k2), dimensions={{}}
  first = pred[64] compare(at, half), direction=LT
  gradient = f32[64] select(first, noise, sum)
  size = f32[64] abs(gradient)
  k3 = f32[] constant(1e-8)
  eps = f32[64] broadcast(k3), dimensions={{}}
  below = f32[64] add(size, eps)
  sign = f32[64] divide(gradient, below)
  k4 = f32[] constant(0.01)
  rate = f32[64] broadcast(k4), dimensions={{}}
  step = f32[64] multiply(sign, rate)
  ROOT next = f32[64] subtract(p, step)
}}
"""

_RECURRENCE = """HloModule recurrence
body {
  state = (s32[], f32[8,32], f32[32,32]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  h = f32[8,32] get-tuple-element(state), index=1
  w = f32[32,32] get-tuple-element(state), index=2
  hr = f32[8,32] reverse(h), dimensions={}
  wr = f32[32,32] reverse(w), dimensions={}
  product = f32[8,32] dot(hr, wr), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[8,32] tanh(product)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT next = (s32[], f32[8,32], f32[32,32]) tuple(j, t, w)
}
more {
  state = (s32[], f32[8,32], f32[32,32]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(30)
  ROOT lt = pred[] compare(i, n), direction=LT
}
ENTRY main {
  h = f32[8,32] parameter(0)
  w = f32[32,32] parameter(1)
  z = s32[] constant(0)
  start = (s32[], f32[8,32], f32[32,32]) tuple(z, h, w)
  loop = (s32[], f32[8,32], f32[32,32]) while(start), condition=more, body=body
  ROOT last = f32[8,32] get-tuple-element(loop), index=1
}
"""

#: Rows 0..14 of the first ten batches have equal sums but for rounding; the others have one largest row.
ARGMAX = f"""HloModule argmax
{_PLUS}
larger {{
  v = f32[] parameter(0) i = s32[] parameter(1) w = f32[] parameter(2) j = s32[] parameter(3)
  ge = pred[] compare(v, w), direction=GE
  a = f32[] select(ge, v, w) b = s32[] select(ge, i, j)
  ROOT t = (f32[], s32[]) tuple(a, b)
}}
ENTRY main {{
  x = f32[20,16,64] parameter(0)
  table = f32[16,3] parameter(1)
  zero = f32[] constant(0)
  turned = f32[20,16,64] reverse(x), dimensions={{}}
  sum = f32[20,16] reduce(turned, zero), dimensions={{2}}, to_apply=plus
  which = s32[20,16] iota(), iota_dimension=1
  least = f32[] constant(-inf)
  none = s32[] constant(0)
  best = (f32[20], s32[20]) reduce(sum, which, least, none), dimensions={{1}}, to_apply=larger
  index = s32[20] get-tuple-element(best), index=1
  rows = f32[20,3] gather(table, index), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
    index_vector_dim=1, slice_sizes={{1,3}}
  ROOT both = (s32[20], f32[20,3]) tuple(index, rows)
}}
"""

#: Sums in units so small that rounding moves them by several.
QUANTIZED = f"""HloModule quantized
{_PLUS}
ENTRY main {{
  x = f32[64,300] parameter(0)
  zero = f32[] constant(0)
  turned = f32[64,300] reverse(x), dimensions={{}}
  sum = f32[64] reduce(turned, zero), dimensions={{1}}, to_apply=plus
  k5 = f32[] constant(2e6)
  unit = f32[64] broadcast(k5), dimensions={{}}
  large = f32[64] multiply(sum, unit)
  ROOT whole = s32[64] convert(large)
}}
"""

#: Results of f16, many of which end in zeros though they were rounded; another program takes the root first.
_NARROW = """HloModule narrow
ENTRY main {
  x = f32[2048] parameter(0)
  t = f32[2048] tanh(x)
  h = f16[2048] convert(t)
  square = f16[2048] multiply(h, h)
  k = f16[] constant(1)
  one = f16[2048] broadcast(k), dimensions={}
  more = f16[2048] add(square, one)
  r = f16[2048] rsqrt(more)
  wide = f32[2048] convert(r)
  s = f32[2048] tanh(wide)
  k2 = f32[] constant(2)
  two = f32[2048] broadcast(k2), dimensions={}
  ROOT out = f32[2048] multiply(s, two)
}
"""

#: The sums of six softmax rows are 6 or one of its neighbours, those of the quarters are exact.
_WHOLE_SUM = f"""HloModule whole_sum
{_PLUS}
ENTRY main {{
  x = f32[40,6,8] parameter(0)
  quarters = f32[40,6,8] parameter(1)
  zero = f32[] constant(0)
  e = f32[40,6,8] exponential(x)
  below = f32[40,6] reduce(e, zero), dimensions={{2}}, to_apply=plus
  wide = f32[40,6,8] broadcast(below), dimensions={{0,1}}
  rows = f32[40,6,8] divide(e, wide)
  turned = f32[40,6,8] reverse(rows), dimensions={{}}
  sum = f32[40] reduce(turned, zero), dimensions={{1,2}}, to_apply=plus
  all = f32[40] reduce(quarters, zero), dimensions={{1,2}}, to_apply=plus
  a = s32[40] convert(sum)
  b = s32[40] convert(all)
  ROOT both = (s32[40], s32[40]) tuple(a, b)
}}
"""


@dataclass(frozen=True)
class Program:
    """A module's text, its inputs, and what is replaced in the text for another order and for errors."""

    text: str
    inputs: tuple[Array, ...]
    other_order: tuple[tuple[str, str], ...]
    wrong: tuple[tuple[str, str], ...]
    damage: tuple[Callable[[list[Array]], None], ...]


def _add(output: int, element: int, amount: float) -> Callable[[list[Array]], None]:
    def damage(outputs: list[Array]) -> None:
        outputs[output].reshape(-1)[element] += outputs[output].dtype.type(amount)

    return damage


def _swap(output: int, one: int, other: int) -> Callable[[list[Array]], None]:
    def damage(outputs: list[Array]) -> None:
        flat = outputs[output].reshape(-1)
        flat[[one, other]] = flat[[other, one]]

    return damage


def _normal(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


def _ties() -> Array:
    rng = np.random.default_rng(5)
    row = rng.standard_normal(64).astype(np.float32)
    x = np.stack([[rng.permutation(row) for _ in range(16)] for _ in range(20)])
    x[:, 15] -= 1
    x[np.arange(10, 20), np.arange(10)] += 1
    return x


def _recurrence(dtype: str, trips: int) -> Program:
    kind = {"float32": "f32", "float64": "f64"}[dtype]
    text = _RECURRENCE.replace("f32", kind).replace("constant(30)", f"constant({trips})")
    return Program(
        text,
        (_normal(8, 32, dtype=dtype), _normal(32, 32, dtype=dtype) / 2),
        (
            ("reverse(h), dimensions={}", "reverse(h), dimensions={1}"),
            ("reverse(w), dimensions={}", "reverse(w), dimensions={0}"),
        ),
        (
            ("rhs_contracting_dims={0}", "rhs_contracting_dims={1}"),
            ("reverse(w), dimensions={}", "reverse(w), dimensions={0}"),
            (f"constant({trips})", f"constant({trips - 1})"),
        ),
        (_add(0, 17, 1.0), _swap(0, 3, 9)),
    )


PROGRAMS = {
    "adam": Program(
        ADAM,
        (_normal(64, 96), _normal(64)),
        (("reverse(x), dimensions={}", "reverse(x), dimensions={1}"),),
        (
            ("subtract(p, step)", "subtract(step, p)"),
            ("divide(gradient, below)", "divide(below, gradient)"),
            ("select(first, noise, sum)", "select(first, sum, noise)"),
            ("reverse(x), dimensions={}", "reverse(x), dimensions={0}"),
        ),
        (_add(0, 50, 1e-4), _add(0, 3, 1.0), _swap(0, 40, 41), _swap(0, 4, 5)),
    ),
    "recurrence": _recurrence("float32", 30),
    "recurrence in f64": _recurrence("float64", 80),
    "argmax": Program(
        ARGMAX,
        (_ties(), _normal(16, 3)),
        (("reverse(x), dimensions={}", "reverse(x), dimensions={2}"),),
        (
            ("direction=GE", "direction=LE"),
            ("reverse(x), dimensions={}", "reverse(x), dimensions={1}"),
        ),
        (
            lambda outputs: outputs[0].__setitem__(2, 15),
            _add(0, 12, 1),
            _add(1, 40, 1e-3),
        ),
    ),
    "quantized": Program(
        QUANTIZED,
        (_normal(64, 300),),
        (("reverse(x), dimensions={}", "reverse(x), dimensions={1}"),),
        (
            ("constant(2e6)", "constant(2.0001e6)"),
            ("reverse(x), dimensions={}", "reverse(x), dimensions={0}"),
        ),
        (_add(0, 9, 3000), _swap(0, 1, 2)),
    ),
}

NARROW = Program(
    _NARROW,
    (np.concatenate([[0.0], np.linspace(0.1, 3.2, 2047)]).astype(np.float32),),
    (("rsqrt(more)", "divide(one, root)"), ("  r = ", "  root = f16[2048] sqrt(more)\n  r = ")),
    (
        ("add(square, one)", "subtract(one, square)"),
        ("multiply(h, h)", "maximum(h, h)"),
        ("tanh(wide)", "sine(wide)"),
    ),
    (_add(0, 0, 6e-4), _add(0, 9, 1e-2), _swap(0, 20, 1200)),
)
WHOLE_SUM = Program(
    _WHOLE_SUM,
    (_normal(40, 6, 8), np.arange(1920, dtype=np.float32).reshape(40, 6, 8) / 4),
    (("reverse(rows), dimensions={}", "reverse(rows), dimensions={1,2}"),),
    (("divide(e, wide)", "divide(wide, e)"), ("reduce(quarters, zero)", "reduce(rows, zero)")),
    (_add(0, 0, 2), _add(1, 0, 1), _add(1, 0, -1)),
)
