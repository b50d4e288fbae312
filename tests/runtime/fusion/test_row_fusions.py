"""Reductions with what is computed before and after them, as one kernel, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.fusion.emitters import emitted, emitter_of
from runtime.program.records.rows import RowKernel
from spmd.evaluator.evaluator import evaluate
from spmd.shape import PrimitiveType
from tests.runtime.cpu.kernels.loop.element_signatures import canonical
from tests.runtime.fusion.reasons import why_not
from tests.runtime.fusion.test_loop_fusions import edge_inputs, kernels
from tests.runtime.programs.build import compiled, module_of, random_inputs

P = PrimitiveType


def reducer(opcode: str, kind: PrimitiveType) -> str:
    return f"""
{opcode} {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT r = {kind}[] {opcode}(a, b)
}}
"""


def module_text(fused: str, entry: str, *reducers: str) -> str:
    return f"HloModule m\n{''.join(reducers)}\nfused {{{fused}}}\n\nENTRY e {{{entry}}}\n"


def check(text: str, *, exact: bool, emitter: str = "reduce", edges: bool = False) -> None:
    """``exact``: the same bits; else within a few roundings of sums in another order."""
    module = module_of(text)
    assert emitter_of(module.entry.root) == emitter, why_not(module.entry.root)
    executable = compiled(text)
    (kernel,) = kernels(executable)
    assert isinstance(kernel, RowKernel)
    for seed in range(2):
        inputs = (edge_inputs if edges else random_inputs)(module, seed)
        with np.errstate(all="ignore"):
            wanted = evaluate(module_of(text), *inputs)
        for got, want in zip(executable.run(*inputs), wanted, strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            if exact:
                assert canonical(got) == canonical(want), text
            else:
                tolerance = _tolerance(want)
                np.testing.assert_allclose(
                    got.astype(np.float64), want.astype(np.float64), tolerance, tolerance
                )


def _tolerance(x: np.ndarray) -> float:
    return {2: 2e-2, 4: 2e-5, 8: 1e-12}[x.dtype.itemsize]


REDUCTIONS = [
    ("maximum", P.F32, "-inf"),
    ("minimum", P.BF16, "inf"),
    ("maximum", P.F16, "2"),
    ("maximum", P.S8, "-128"),
    ("minimum", P.U64, "7"),
    ("add", P.S32, "3"),
    ("multiply", P.U16, "1"),
    ("xor", P.S64, "5"),
    ("and", P.PRED, "true"),
    ("or", P.PRED, "false"),
]


def reduce_text(
    opcode: str, kind: PrimitiveType, init: str, dims: tuple[int, ...], axes: tuple[int, ...]
) -> str:
    shape = f"{kind}[{','.join(map(str, dims))}]"
    left = f"{kind}[{','.join(str(n) for d, n in enumerate(dims) if d not in axes)}]"
    fused = f"""
  p = {shape} parameter(0)
  q = {shape} parameter(1)
  x = {shape} {"and" if kind is P.PRED else "maximum"}(p, q)
  i = {kind}[] constant({init})
  ROOT r = {left} reduce(x, i), dimensions={{{",".join(map(str, axes))}}}, to_apply={opcode}
"""
    entry = f"""
  p = {shape} parameter(0)
  q = {shape} parameter(1)
  ROOT f = {left} fusion(p, q), kind=kInput, calls=fused
"""
    return module_text(fused, entry, reducer(opcode, kind))


@pytest.mark.parametrize(("opcode", "kind", "init"), REDUCTIONS, ids=lambda x: str(x))
@pytest.mark.parametrize("axes", [(1,), (0,)])
def test_kinds(opcode: str, kind: PrimitiveType, init: str, axes: tuple[int, ...]) -> None:
    check(reduce_text(opcode, kind, init, (5, 150), axes), exact=True, edges=True)


SHAPES = [
    ((7,), (0,)),
    ((64,), (0,)),
    ((65,), (0,)),
    ((3, 129), (1,)),
    ((129, 3), (0,)),
    ((5, 1030), (0,)),
    ((2, 5, 7), (1,)),
    ((2, 5, 7), (0, 2)),
    ((2, 5, 7), (0, 1)),
    ((2, 5, 7), (0, 1, 2)),
    ((1, 5, 1, 7), (1, 2)),
    ((2, 3, 4, 5), (1, 3)),
    ((4, 0), (1,)),
    ((0, 4), (0,)),
]


@pytest.mark.parametrize(("dims", "axes"), SHAPES, ids=str)
def test_shapes(dims: tuple[int, ...], axes: tuple[int, ...]) -> None:
    check(reduce_text("add", P.S32, "3", dims, axes), exact=True)
    check(reduce_text("add", P.F32, "0.5", dims, axes), exact=False)


SOFTMAX = """
  p = f32[5,70] parameter(0)
  low = f32[] constant(-inf)
  m = f32[5] reduce(p, low), dimensions={1}, to_apply=maximum
  mb = f32[5,70] broadcast(m), dimensions={0}
  d = f32[5,70] subtract(p, mb)
  e = f32[5,70] exponential(d)
  z = f32[] constant(0)
  s = f32[5] reduce(e, z), dimensions={1}, to_apply=add
  sb = f32[5,70] broadcast(s), dimensions={0}
  ROOT r = f32[5,70] divide(e, sb)
"""
LAYERNORM = """
  p = bf16[3,4,70] parameter(0)
  g = f32[70] parameter(1)
  x = f32[3,4,70] convert(p)
  z = f32[] constant(0)
  n = f32[] constant(70)
  nb = f32[3,4,1] broadcast(n), dimensions={}
  s = f32[3,4] reduce(x, z), dimensions={2}, to_apply=add
  sr = f32[3,4,1] reshape(s)
  mean = f32[3,4,1] divide(sr, nb)
  meanr = f32[3,4] reshape(mean)
  mb = f32[3,4,70] broadcast(meanr), dimensions={0,1}
  d = f32[3,4,70] subtract(x, mb)
  dd = f32[3,4,70] multiply(d, d)
  v = f32[3,4] reduce(dd, z), dimensions={2}, to_apply=add
  vr = f32[3,4,1] reshape(v)
  var = f32[3,4,1] divide(vr, nb)
  std = f32[3,4,1] sqrt(var)
  stdr = f32[3,4] reshape(std)
  stdb = f32[3,4,70] broadcast(stdr), dimensions={0,1}
  o = f32[3,4,70] divide(d, stdb)
  gb = f32[3,4,70] broadcast(g), dimensions={2}
  og = f32[3,4,70] multiply(o, gb)
  ob = bf16[3,4,70] convert(og)
  ROOT t = (bf16[3,4,70], f32[3,4,1], f32[12]) tuple(ob, mean, std12)
""".replace("  ROOT t", "  std12 = f32[12] reshape(std)\n  ROOT t")


def test_softmax() -> None:
    entry = """
  p = f32[5,70] parameter(0)
  ROOT f = f32[5,70] fusion(p), kind=kInput, calls=fused
"""
    text = module_text(SOFTMAX, entry, reducer("maximum", P.F32), reducer("add", P.F32))
    check(text, exact=False, emitter="row")
    executable = compiled(text)
    assert executable.stats.temp <= 70 * 4 + 64  # the exponentials of one row


def test_layernorm_of_a_strided_operand() -> None:
    entry = """
  p = bf16[70,4,3] parameter(0)
  t = bf16[3,4,70] transpose(p), dimensions={2,1,0}
  u = bf16[3,4,70] reverse(t), dimensions={0,2}
  g = f32[70] parameter(1)
  ROOT f = (bf16[3,4,70], f32[3,4,1], f32[12]) fusion(u, g), kind=kInput, calls=fused
"""
    check(module_text(LAYERNORM, entry, reducer("add", P.F32)), exact=False, emitter="row")


def test_column_sums_with_siblings() -> None:
    """A sum, a maximum and the computed values themselves, of one walk."""
    fused = """
  p = f32[33,20] parameter(0)
  n = f32[33,20] abs(p)
  z = f32[] constant(0)
  a = f32[] parameter(1)
  s = f32[20] reduce(n, z), dimensions={0}, to_apply=add
  m = f32[20] reduce(p, a), dimensions={0}, to_apply=maximum
  both = f32[20] add(s, m)
  ROOT t = (f32[20], f32[33,20], f32[20]) tuple(both, n, m)
"""
    entry = """
  p = f32[33,20] parameter(0)
  a = f32[] parameter(1)
  ROOT f = (f32[20], f32[33,20], f32[20]) fusion(p, a), kind=kInput, calls=fused
"""
    text = module_text(fused, entry, reducer("maximum", P.F32), reducer("add", P.F32))
    check(text, exact=False)


@pytest.mark.parametrize("axis", [0, 1])
def test_many_roundings_of_long_rows(axis: int) -> None:
    """Vectors are computed side by side, what is left of a row is not."""
    result = f"f32[{(3, 331)[1 - axis]}]"
    fused = f"""
  p = bf16[3,331] parameter(0)
  a = bf16[3,331] multiply(p, p)
  b = bf16[3,331] multiply(a, p)
  c = bf16[3,331] add(b, p)
  d = bf16[3,331] multiply(c, b)
  e = bf16[3,331] subtract(d, a)
  w = f32[3,331] convert(e)
  low = f32[] constant(-inf)
  m = {result} reduce(w, low), dimensions={{{axis}}}, to_apply=maximum
  ROOT t = (bf16[3,331], {result}) tuple(e, m)
"""
    entry = f"""
  p = bf16[3,331] parameter(0)
  ROOT f = (bf16[3,331], {result}) fusion(p), kind=kInput, calls=fused
"""
    check(module_text(fused, entry, reducer("maximum", P.F32)), exact=True)


REFUSED = {
    "reduces other dimensions": """
  p = f32[4,4] parameter(0)
  z = f32[] constant(0)
  a = f32[4] reduce(p, z), dimensions={0}, to_apply=add
  b = f32[4] reduce(p, z), dimensions={1}, to_apply=add
  ROOT r = f32[4] add(a, b)
""",
    "needed for other rows": """
  p = f32[4,4] parameter(0)
  z = f32[] constant(0)
  a = f32[4] reduce(p, z), dimensions={1}, to_apply=add
  b = f32[4,4] broadcast(a), dimensions={1}
  ROOT r = f32[4,4] add(p, b)
""",
    "do not lie in memory one after the other": """
  p = f32[4,4] parameter(0)
  z = f32[] constant(0)
  a = f32[4] reduce(p, z), dimensions={0}, to_apply=add
  b = f32[4,4] broadcast(a), dimensions={1}
  ROOT r = f32[4,4] add(p, b)
""",
    "reduces nothing": """
  p = f32[4,1] parameter(0)
  z = f32[] constant(0)
  ROOT a = f32[4] reduce(p, z), dimensions={1}, to_apply=add
""",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    text = f"HloModule m\n{reducer('add', P.F32)}\nENTRY e {{{REFUSED[reason]}}}\n"
    assert reason in why_not(module_of(text).entry)


def test_sums_start_from_a_neutral_zero() -> None:
    """-0 only where everything is: the elements and the initial value."""
    text = reduce_text("add", P.F32, "-0", (3, 100), (1,))
    minus = np.full((3, 100), -0.0, np.float32)
    (got,) = compiled(text).run(minus, minus)
    assert np.signbit(got).all()


def test_rows_of_a_dynamic_slice() -> None:
    """The start is computed in the kernel, and clamped into the array."""
    fused = """
  p = f32[9,90] parameter(0)
  i = s32[] parameter(1)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[3,70] dynamic-slice(p, j, i), dynamic_slice_sizes={3,70}
  z = f32[] constant(0)
  s = f32[3] reduce(x, z), dimensions={1}, to_apply=add
  b = f32[3,70] broadcast(s), dimensions={0}
  ROOT r = f32[3,70] divide(x, b)
"""
    entry = """
  p = f32[9,90] parameter(0)
  i = s32[] parameter(1)
  ROOT f = f32[3,70] fusion(p, i), kind=kInput, calls=fused
"""
    text = module_text(fused, entry, reducer("add", P.F32))
    check(text, exact=False, emitter="row")
    x = np.random.default_rng(0).random((9, 90), np.float32)
    for start in (-5, 0, 3, 100):
        at = (min(max(start + 1, 0), 6), min(max(start, 0), 20))
        part = x[at[0] : at[0] + 3, at[1] : at[1] + 70]
        (got,) = compiled(text).run(x, np.array(start, np.int32))
        np.testing.assert_allclose(got, part / part.sum(1, keepdims=True), 1e-5)


def test_a_row_takes_the_place_of_the_one_it_is_made_of() -> None:
    entry = """
  p = f32[5,70] parameter(0)
  ROOT f = f32[5,70] fusion(p), kind=kInput, calls=fused
"""
    text = module_text(SOFTMAX, entry, reducer("maximum", P.F32), reducer("add", P.F32))
    text = text.replace("HloModule m", "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }")
    check(text, exact=False, emitter="row")
    assert compiled(text).stats.temp < 5 * 70 * 4  # no second array


def test_no_result_lies_where_a_later_pass_reads() -> None:
    """A result that needs no reduction is written in the first pass; the second one reads the operand again."""
    fused = SOFTMAX.replace(
        "ROOT r = f32[5,70] divide(e, sb)",
        "r = f32[5,70] divide(p, sb)\n  a = f32[5,70] abs(p)\n"
        "  ROOT t = (f32[5,70], f32[5,70]) tuple(a, r)",
    )
    entry = """
  p = f32[5,70] parameter(0)
  n = f32[5,70] negate(p)
  ROOT f = (f32[5,70], f32[5,70]) fusion(n), kind=kInput, calls=fused
"""
    text = module_text(fused, entry, reducer("maximum", P.F32), reducer("add", P.F32))
    plan = emitted(module_of(text).entry.root).plan
    assert plan.overwrites == ((1, 0),)
    executable = compiled(text)
    for seed in range(2):
        inputs = random_inputs(executable.module, seed)
        for got, want in zip(
            executable.run(*inputs), evaluate(module_of(text), *inputs), strict=True
        ):
            np.testing.assert_allclose(got, want, 1e-5, 1e-6)
