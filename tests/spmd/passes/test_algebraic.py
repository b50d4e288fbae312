"""Every identity: what it makes, and that the evaluator sees no difference."""

from __future__ import annotations

import numpy as np
import pytest
from hlo_expression import expression

from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule, Opcode, Stage
from spmd.passes.algebraic.rules import IDENTITIES
from spmd.passes.algebraic_simplifier import AlgebraicSimplifier
from spmd.passes.tuple_simplifier import TupleSimplifier
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module
from spmd.verifier import verify

PRELUDE = """HloModule t
sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT add = f32[] add(x, y)
}
max {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT add = f32[] maximum(x, y)
}
"""

#: Parameters p0.. of the entry by name.
PARAMETERS = {
    "a": "f32[4,6]",
    "b": "f32[4,6]",
    "i": "s32[4]",
    "p": "pred[4]",
    "q": "pred[4]",
    "s": "f32[]",
    "v": "f32[6]",
    "h": "bf16[4]",
    "k": "s32[]",
    "u": "f32[4,1,6]",
    "w": "f32[6,5]",
    "e": "f32[0,6]",
}

CONSTANTS = """
  zero = f32[] constant(0)
  one = f32[] constant(1)
  four = f32[] constant(4)
  ninf = f32[] constant(-inf)
  i0 = s32[] constant(0)
  i1 = s32[] constant(1)
  yes = pred[] constant(true)
  no = pred[] constant(false)
  zeros = f32[4,6] broadcast(zero), dimensions={}
  ones = f32[4,6] broadcast(one), dimensions={}
  fours = f32[4,6] broadcast(four), dimensions={}
  ninfs = f32[4,6] broadcast(ninf), dimensions={}
  i0s = s32[4] broadcast(i0), dimensions={}
  i1s = s32[4] broadcast(i1), dimensions={}
  yess = pred[4] broadcast(yes), dimensions={}
  nos = pred[4] broadcast(no), dimensions={}
  count = s32[4] iota(), iota_dimension=0
"""

#: A layer: r is the rectified y.
RECTIFIED = (
    "z = f32[4,5] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}; "
    "ws = f32[4,5] broadcast(s), dimensions={}; y = f32[4,5] add(z, ws); "
    "zs = f32[4,5] broadcast(zero), dimensions={}; r = f32[4,5] maximum(y, zs)"
)
_W, _0 = "broadcast(p5, (), f32[4,5])", "broadcast(0.0, (), f32[4,5])"
_R = f"maximum(add(dot(p0, p10, (1,), (0,)), {_W}), {_0})"

#: program (the last line is the result) -> its simplified expression
CASES = {
    # arithmetic
    "f32[4,6] add(a, zeros)": "p0",
    "f32[4,6] add(zeros, a)": "p0",
    "f32[4,6] subtract(a, zeros)": "p0",
    "s32[4] subtract(i, i)": "broadcast(0, (), s32[4])",
    "n = f32[4,6] negate(b); f32[4,6] add(a, n)": "subtract(p0, p1)",
    "n = f32[4,6] negate(b); f32[4,6] subtract(a, n)": "add(p0, p1)",
    "f32[4,6] multiply(ones, a)": "p0",
    "s32[4] multiply(i, i0s)": "broadcast(0, (), s32[4])",
    "m = f32[4,6] negate(a); n = f32[4,6] negate(b); f32[4,6] multiply(m, n)": "multiply(p0, p1)",
    "f32[4,6] divide(a, ones)": "p0",
    "f32[4,6] divide(a, fours)": "multiply(p0, broadcast(0.25, (), f32[4,6]))",
    "s32[4] remainder(i, i1s)": "broadcast(0, (), s32[4])",
    "n = f32[4,6] negate(a); f32[4,6] negate(n)": "p0",
    "f32[4,6] maximum(a, a)": "p0",
    "f32[4,6] maximum(a, ninfs)": "p0",
    "two = f32[] constant(2); t = f32[4,6] broadcast(two), dimensions={}; f32[4,6] power(a, t)": "multiply(p0, p0)",
    "c = s32[4] convert(p); s32[4] multiply(c, i)": "select(p3, p2, broadcast(0, (), s32[4]))",
    "c = s32[4] add(i1s, i); d = s32[4] subtract(c, i1s); g = s32[4] add(d, i1s); s32[4] add(g, i1s)": (
        "add(p2, broadcast(2, (), s32[4]))"
    ),
    # logical
    "pred[4] and(p, yess)": "p3",
    "pred[4] and(p, nos)": "broadcast(False, (), pred[4])",
    "pred[4] or(nos, p)": "p3",
    "pred[4] or(p, p)": "p3",
    "n = pred[4] not(p); pred[4] not(n)": "p3",
    # compare
    "pred[4] compare(i, i), direction=LE": "broadcast(True, (), pred[4])",
    "pred[4] compare(p, yess), direction=EQ": "p3",
    "pred[4] compare(p, yess), direction=NE": "not(p3)",
    "pred[4] compare(count, i0s), direction=GE": "broadcast(True, (), pred[4])",
    "pred[4] compare(i0s, count), direction=GT": "broadcast(False, (), pred[4])",
    "n = s32[4] select(p, i1s, i0s); pred[4] compare(n, i1s), direction=NE": "not(p3)",
    "n = s32[4] select(p, i1s, i0s); pred[4] compare(i0s, n), direction=LT": "p3",
    "n = s32[4] select(p, i1s, i0s); pred[4] compare(n, i0s), direction=GE": "broadcast(True, (), pred[4])",
    f"{RECTIFIED}; g = pred[4,5] compare(y, zs), direction=GT; f32[4,5] select(g, r, ws)": (
        f"select(compare({_R}, {_0}, GT), {_R}, {_W})"
    ),
    f"{RECTIFIED}; g = pred[4,5] compare(zs, y), direction=GE; f32[4,5] select(g, r, ws)": (
        f"select(compare({_0}, {_R}, GE), {_R}, {_W})"
    ),
    "c = pred[4,6] compare(a, b), direction=EQ; pred[4,6] not(c)": "compare(p0, p1, NE)",
    "c = pred[4] compare(i, count), direction=LT; pred[4] not(c)": "compare(p2, iota(0, s32[4]), GE)",
    "f32[1,6] iota(), iota_dimension=0": "broadcast(0.0, (), f32[1,6])",
    # select
    "s32[4] select(yess, i, i0s)": "p2",
    "s32[4] select(p, i, i)": "p2",
    "pred[4] select(p, yess, nos)": "p3",
    "pred[4] select(p, nos, yess)": "not(p3)",
    "n = s32[4] select(p, i, i1s); s32[4] select(p, n, count)": "select(p3, p2, iota(0, s32[4]))",
    # convert
    "f32[4,6] convert(a)": "p0",
    "c = f32[4] convert(h); bf16[4] convert(c)": "p7",
    "c = f32[4] convert(h); f64[4] convert(c)": "convert(p7, f64[4])",
    "c = s32[4] convert(p); f32[4] convert(c)": "convert(p3, f32[4])",
    # copy
    "f32[4,6] copy(a)": "p0",
    "c = s32[4,6] bitcast-convert(a); f32[4,6] bitcast-convert(c)": "p0",
    # broadcast
    "f32[4,6] broadcast(a), dimensions={0,1}": "p0",
    "f32[4,1,6] broadcast(a), dimensions={0,2}": "reshape(p0, f32[4,1,6])",
    "c = f32[3,6] broadcast(v), dimensions={1}; f32[2,3,6] broadcast(c), dimensions={1,2}": (
        "broadcast(p6, (2,), f32[2,3,6])"
    ),
    "c = f32[1,6] reshape(v); f32[1,6,3] broadcast(c), dimensions={0,1}": "broadcast(p6, (1,), f32[1,6,3])",
    "c = f32[4,6] broadcast(v), dimensions={1}; d = f32[4,6] broadcast(s), dimensions={}; f32[4,6] multiply(c, d)": (
        "broadcast(multiply(p6, broadcast(p5, (), f32[6])), (1,), f32[4,6])"
    ),
    "c = f32[4,6] broadcast(s), dimensions={}; f32[4,6] exponential(c)": "broadcast(exponential(p5), (), f32[4,6])",
    # reshape
    "f32[4,6] reshape(a)": "p0",
    "c = f32[24] reshape(a); f32[4,6] reshape(c)": "p0",
    "c = f32[4,6] broadcast(s), dimensions={}; f32[24] reshape(c)": "broadcast(p5, (), f32[24])",
    "c = f32[4,1,6] broadcast(v), dimensions={2}; f32[4,6] reshape(c)": "broadcast(p6, (1,), f32[4,6])",
    # transpose
    "f32[4,6] transpose(a), dimensions={0,1}": "p0",
    "f32[1,4,6] transpose(u), dimensions={1,0,2}": "reshape(p9, f32[1,4,6])",
    "c = f32[6,4] transpose(a), dimensions={1,0}; f32[4,6] transpose(c), dimensions={1,0}": "p0",
    "d = f32[4,5] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}; "
    "f32[5,4] transpose(d), dimensions={1,0}": "dot(p10, p0, (0,), (1,))",
    "c = f32[2,2,6] reshape(a); d = f32[2,2,5] dot(c, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}; "
    "f32[2,5,2] transpose(d), dimensions={0,2,1}": (
        "transpose(dot(p10, reshape(p0, f32[2,2,6]), (0,), (2,)), (1, 0, 2))"
    ),
    # slice
    "f32[4,6] slice(a), slice={[0:4], [0:6]}": "p0",
    "c = f32[3,6] slice(a), slice={[1:4], [0:6]}; f32[2,3] slice(c), slice={[0:3:2], [0:6:2]}": (
        "slice(p0, (1, 0), (4, 5), (2, 2))"
    ),
    "c = f32[4,6] broadcast(v), dimensions={1}; f32[2,6] slice(c), slice={[1:3], [0:6]}": (
        "broadcast(p6, (1,), f32[2,6])"
    ),
    "c = f32[4,6] broadcast(v), dimensions={1}; f32[4,2] slice(c), slice={[0:4], [1:3]}": (
        "broadcast(slice(p6, (1,), (3,), (1,)), (1,), f32[4,2])"
    ),
    "c = f32[4,6] broadcast(v), dimensions={1}; f32[3,2] dynamic-slice(c, i0, k), dynamic_slice_sizes={3,2}": (
        "broadcast(dynamic-slice(p6, p8, (2,)), (1,), f32[3,2])"
    ),
    "s32[2] slice(count), slice={[0:2]}": "iota(0, s32[2])",
    "c = f32[8,6] concatenate(a, b), dimensions={0}; f32[2,6] slice(c), slice={[5:7], [0:6]}": (
        "slice(p1, (1, 0), (3, 6), (1, 1))"
    ),
    "c = f32[8,6] pad(a, zero), padding=1_3x0_0; f32[4,6] slice(c), slice={[1:5], [0:6]}": "p0",
    "c = s32[] constant(9); f32[2,6] dynamic-slice(a, c, i0), dynamic_slice_sizes={2,6}": (
        "slice(p0, (2, 0), (4, 6), (1, 1))"
    ),
    "f32[4,6] dynamic-slice(a, k, k), dynamic_slice_sizes={4,6}": "p0",
    "f32[4,6] dynamic-update-slice(a, b, k, k)": "p1",
    "f32[4,1,6] reverse(u), dimensions={1}": "p9",
    "c = f32[4,6] reverse(a), dimensions={0}; f32[4,6] reverse(c), dimensions={0}": "p0",
    # pad
    "f32[4,6] pad(a, zero), padding=0_0x0_0": "p0",
    "f32[2,6] pad(a, zero), padding=-1_-1x0_0": "slice(p0, (1, 0), (3, 6), (1, 1))",
    "f32[2,6] pad(e, s), padding=1_1x0_0": "broadcast(p5, (), f32[2,6])",
    # concatenate
    "f32[4,6] concatenate(a), dimensions={0}": "p0",
    "f32[4,6] concatenate(e, a), dimensions={0}": "p0",
    "c = f32[8,6] concatenate(a, b), dimensions={0}; f32[12,6] concatenate(c, a), dimensions={0}": (
        "concatenate(p0, p1, p0, (0,))"
    ),
    "c = f32[1,6] slice(a), slice={[0:1], [0:6]}; d = f32[2,6] slice(a), slice={[1:3], [0:6]}; "
    "f32[3,6] concatenate(c, d), dimensions={0}": "slice(p0, (0, 0), (3, 6), (1, 1))",
    # reduce
    "f32[4,6] reduce(u, zero), dimensions={1}, to_apply=sum": "reshape(p9, f32[4,6])",
    "c = f32[6,4] transpose(a), dimensions={1,0}; f32[6] reduce(c, zero), dimensions={1}, to_apply=sum": (
        "reduce(p0, 0.0, (0,))"
    ),
    "c = f32[4,6] broadcast(v), dimensions={1}; f32[6] reduce(c, ninf), dimensions={0}, to_apply=max": "p6",
    "c = f32[4,6] broadcast(v), dimensions={1}; f32[6] reduce(c, zero), dimensions={0}, to_apply=sum": (
        "multiply(p6, broadcast(4.0, (), f32[6]))"
    ),
    "c = f32[4] reduce(a, ninf), dimensions={1}, to_apply=max; f32[] reduce(c, ninf), dimensions={0}, to_apply=max": (
        "reduce(p0, -inf, (0, 1))"
    ),
    "c = f32[24] reshape(a); f32[] reduce(c, ninf), dimensions={0}, to_apply=max": "reduce(p0, -inf, (0, 1))",
    "c = f32[2,1,2,6] reshape(a); f32[1,6] reduce(c, ninf), dimensions={0,2}, to_apply=max": (
        "reshape(reduce(p0, -inf, (0,)), f32[1,6])"
    ),
    "f32[6] reduce(e, s), dimensions={0}, to_apply=sum": "broadcast(p5, (), f32[6])",
    # dot, ragged-dot
    "f32[4,6,6] ragged-dot(a, b, i), lhs_batch_dims={0}, rhs_batch_dims={0}, "
    "lhs_ragged_dims={0}": "multiply(broadcast(p0, (0, 1), f32[4,6,6]), broadcast(p1, (0, 2), f32[4,6,6]))",
    "t = f32[6,4] transpose(a), dimensions={1,0}; "
    "f32[4,5] dot(t, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}": "dot(p0, p10, (1,), (0,))",
    "t = f32[6,0] transpose(e), dimensions={1,0}; "
    "f32[6,6] dot(t, t), lhs_contracting_dims={1}, rhs_contracting_dims={1}": "broadcast(0.0, (), f32[6,6])",
    "t = f32[6,1,4] transpose(u), dimensions={2,1,0}; "
    "f32[1,4,5] dot(t, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}": (
        "reshape(dot(p9, p10, (2,), (0,)), f32[1,4,5])"
    ),
    "c = f32[4] convert(h); "
    "f32[4,6] ragged-dot(c, b, i), lhs_ragged_dims={0}, rhs_group_dims={0}": (
        "ragged-dot(p7, p1, p2, DotAttrs(lhs_contracting=(), rhs_contracting=(), lhs_batch=(), rhs_batch=(), "
        "operand_precision=(), algorithm='', extra=()), (0,), (0,))"
    ),
    "f32[] dot(a, b), lhs_contracting_dims={1,0}, rhs_contracting_dims={1,0}": "dot(p0, p1, (0, 1), (0, 1))",
    "c = f32[4] convert(h); d = f32[4] convert(h); "
    "f32[] dot(c, d), lhs_contracting_dims={0}, rhs_contracting_dims={0}": "dot(p7, p7, (0,), (0,))",
    "s32[4,4] dot(i, i)": "multiply(broadcast(p2, (0,), s32[4,4]), broadcast(p2, (1,), s32[4,4]))",
    "c = s32[4,3] broadcast(i), dimensions={0}; s32[3] dot(i, c), lhs_contracting_dims={0}, rhs_contracting_dims={0}": (
        "broadcast(dot(p2, p2, (0,), (0,)), (), s32[3])"
    ),
    "c = s32[3,4] broadcast(i), dimensions={1}; s32[3] dot(c, i), lhs_contracting_dims={1}, rhs_contracting_dims={0}": (
        "broadcast(dot(p2, p2, (0,), (0,)), (), s32[3])"
    ),
}

#: what must stay as it is, because the identity would change values
KEPT = {
    "c = f32[4] convert(i); s32[4] convert(c)": "f32 rounds large integers",
    "c = bf16[4,6] convert(a); f32[4,6] convert(c)": "bf16 rounds",
    "f32[4,6] multiply(a, zeros)": "nan times 0",
    "pred[4,6] compare(a, a), direction=EQ": "nan differs from itself",
    "t = f32[] constant(3); c = f32[4,6] broadcast(t), dimensions={}; f32[4,6] divide(a, c)": "1/3 is rounded",
    "c = f32[3,6] broadcast(v), dimensions={1}; f32[6] reduce(c, zero), dimensions={0}, to_apply=sum": "3 terms round",
    "f32[4] reduce(a, one), dimensions={1}, to_apply=sum": "1 is not neutral",
    "c = f32[6,4] transpose(a), dimensions={1,0}; f32[4] reduce(c, s), dimensions={0}, to_apply=sum": "any start",
    "f32[3,6] dynamic-slice(a, k, i0), dynamic_slice_sizes={3,6}": "start unknown",
    "c = f32[4] convert(i); f32[] dot(c, c), lhs_contracting_dims={0}, rhs_contracting_dims={0}": "f32 rounds integers",
    "c = pred[4,6] compare(a, b), direction=LT; pred[4,6] not(c)": "neither holds of a nan",
    "c = f32[4] convert(p); d = f32[4] convert(i); f32[4] multiply(c, d)": "nan times 0",
    "c = f32[4] convert(h); bf16[4,4] dot(c, c)": "operands do not fit the result's type",
}


def program(lines: str) -> HloModule:
    """The entry with all parameters and constants; the last of ``lines`` is the root."""
    *before, last = [line.strip() for line in lines.split(";")]
    parameters = [
        f"{name} = {shape} parameter({n})" for n, (name, shape) in enumerate(PARAMETERS.items())
    ]
    body = "\n  ".join([*parameters, *before, f"ROOT result = {last}"])
    module = parse_module(f"{PRELUDE}\nENTRY e {{{CONSTANTS}\n  {body}\n}}\n")
    module.entry.remove_unused()
    return module


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    values = []
    for parameter in program("f32[] add(s, s)").entry.parameters:
        shape = parameter.array_shape
        if shape.element_type is PrimitiveType.PRED:
            values.append(rng.random(shape.dims) < 0.5)
        elif shape.element_type.is_integer:
            values.append(rng.integers(-3, 4, shape.dims).astype(shape.element_type.numpy))
        else:
            values.append(rng.normal(size=shape.dims).astype(shape.element_type.numpy))
    return values


@pytest.mark.parametrize("lines", CASES)
def test_identity(lines: str) -> None:
    module = program(lines)
    expected = evaluate(module, *arguments())
    assert AlgebraicSimplifier().run(module)
    verify(module)
    assert expression(module.entry.root) == CASES[lines]
    for want, got in zip(expected, evaluate(module, *arguments()), strict=True):
        assert want.dtype == got.dtype
        np.testing.assert_array_equal(want, got)


@pytest.mark.parametrize("lines", KEPT)
def test_kept(lines: str) -> None:
    module = program(lines)
    before = module.entry.root.opcode
    AlgebraicSimplifier().run(module)
    assert module.entry.root.opcode is before


@pytest.mark.parametrize(("rows", "opcode"), [(16, Opcode.REDUCE), (17, Opcode.DOT)])
def test_products_with_small_matrices_are_reductions(rows: int, opcode: Opcode) -> None:
    """A batch of products of a matrix and a vector is a reduction up to 128 elements of a matrix, else a product."""
    module = parse_module(f"""HloModule m
ENTRY e {{
  a = f32[9,{rows},8] parameter(0)
  b = f32[9,8] parameter(1)
  ROOT d = f32[9,{rows}] dot(a, b), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
}}
""")
    AlgebraicSimplifier().run(module)
    assert module.entry.root.opcode is opcode


def test_every_identity_is_tested() -> None:
    """Each identity fires in at least one case."""
    fired: set[str] = set()
    wrapped = {}
    for opcode, identities in IDENTITIES.items():
        wrapped[opcode] = list(identities)

        def spy(identity):  # type: ignore[no-untyped-def]
            def run(x, b):  # type: ignore[no-untyped-def]
                simpler = identity(x, b)
                if simpler is not None:
                    fired.add(identity.__name__)
                return simpler

            run.__name__ = identity.__name__
            return run

        IDENTITIES[opcode] = [spy(identity) for identity in identities]
    try:
        for lines in CASES:
            AlgebraicSimplifier().run(program(lines))
    finally:
        IDENTITIES.update(wrapped)
    all_names = {identity.__name__ for identities in IDENTITIES.values() for identity in identities}
    untested = {
        "bitcast_to_itself",
        "reduce_precision_to_itself",
        "add_of_disjoint_parts",
        "one_element_per_row",
        "gather_of_elementwise",
        "dot_along_few",
        "slice_of_elementwise",
        "dynamic_slice_of_elementwise",
        "slice_across_parts",
        "slice_of_unit_reshape",
        "slice_of_large_iota",
        "slice_of_padded",
    }  # tested apart
    assert all_names - fired == untested


PADDED = """
  top = f32[1,6] slice(a), slice={[0:1], [0:6]}; row = f32[1,6] slice(b), slice={[1:2], [0:6]};
  l = f32[4,6] pad(top, zero), padding=0_3x0_0; m = f32[4,6] pad(row, zero), padding=2_1x0_0"""


@pytest.mark.parametrize(
    ("last", "result"),
    [
        ("f32[4,6] add(l, m)", "concatenate(ONE, Z1, TWO, Z1, (0,))"),
        ("r = f32[4,6] pad(top, zero), padding=1_2x0_0; part = f32[4,6] add(l, m); f32[4,6] add(part, r)",
         "concatenate(ONE, ONE, TWO, Z1, (0,))"),
        ("r = f32[4,6] pad(top, zero), padding=2_1x0_0; f32[4,6] add(m, r)", None),  # overlap
        ("r = f32[4,6] pad(top, four), padding=3_0x0_0; f32[4,6] add(l, r)", None),  # no zeros
        ("part = f32[4,6] add(l, m); f32[4,6] multiply(part, l)", None),  # l is needed as it is
    ],
)  # fmt: skip
def test_sums_of_parts_that_do_not_overlap(last: str, result: str | None) -> None:
    module = program(f"{PADDED}; {last}")
    expected = evaluate(module, *arguments())
    AlgebraicSimplifier().run(module)
    assert Opcode.PAD in [x.opcode for x in module.entry.instructions]  # not before partitioning
    module.stage = Stage.PARTITIONED
    assert AlgebraicSimplifier().run(module) == (result is not None)
    verify(module)
    names = {"ONE": "slice(p0, (0, 0), (1, 6), (1, 1))", "TWO": "slice(p1, (1, 0), (2, 6), (1, 1))"}
    for short, text in {**names, "Z1": "broadcast(0.0, (), f32[1,6])"}.items():
        result = result.replace(short, text) if result is not None else None
    assert result is None or expression(module.entry.root) == result
    for want, got in zip(expected, evaluate(module, *arguments()), strict=True):
        np.testing.assert_array_equal(want, got)


def test_annotated_values_stay() -> None:
    module = program("f32[4,6] add(a, zeros), sharding={devices=[2,1]<=[2]}")
    assert not AlgebraicSimplifier().run(module)


def test_reduce_precision_twice() -> None:
    module = program(
        "r = f32[4,6] reduce-precision(a), exponent_bits=5, mantissa_bits=10; "
        "f32[4,6] reduce-precision(r), exponent_bits=5, mantissa_bits=10"
    )
    AlgebraicSimplifier().run(module)
    assert expression(module.entry.root) == "reduce-precision(p0, 5, 10)"


def test_simplified_tuples() -> None:
    module = program("t = (f32[4,6], f32[4,6]) tuple(a, b); f32[4,6] get-tuple-element(t), index=1")
    assert TupleSimplifier().run(module)
    assert expression(module.entry.root) == "p1"
    module = program(
        'c = ((f32[4,6]), f32[]) custom-call(a), custom_call_target="f"; g = (f32[4,6]) get-tuple-element(c), index=0; '
        "h1 = f32[] get-tuple-element(c), index=1; ((f32[4,6]), f32[]) tuple(g, h1)"
    )
    assert TupleSimplifier().run(module)
    assert module.entry.root.name == "c"
