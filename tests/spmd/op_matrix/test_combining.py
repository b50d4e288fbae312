"""Edge values through every operation that combines elements: each form below computes op(x, y) of all pairs.

So the definition is the elementwise one (real_functions, whole_functions, complex_functions), whatever the form does
with its dimensions; test_reductions.py says which elements meet.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import pytest

from spmd.evaluator import evaluate_partitions
from tests.spmd.op_matrix import allowed
from tests.spmd.op_matrix.formats import COMPLEX, FLOATS, INF, INTEGERS, bounds, wrap
from tests.spmd.op_matrix.judge import scalars
from tests.spmd.op_matrix.run import array, read, run
from tests.spmd.op_matrix.test_elementwise import misses, report
from tests.spmd.op_matrix.values import ALL_TYPES, edges, values


@dataclass(frozen=True)
class Form:
    """``lines`` make r of the operands x and y of {k}[{n}]; on two devices each has one of the two, named x."""

    opcodes: tuple[str, ...]
    lines: str
    devices: int = 1


_REDUCERS = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
_SIDE_BY_SIDE = (
    "x1 = {k}[{n},1] reshape(x)\ny1 = {k}[{n},1] reshape(y)\n"
    "z = {k}[{n},2] concatenate(x1, y1), dimensions={{1}}\n"
)
_GROUP = "channel_id=1, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=op"

FORMS = {
    "map": Form(_REDUCERS, "ROOT r = {k}[{n}] map(x, y), dimensions={{0}}, to_apply=op"),
    "scatter": Form(
        _REDUCERS,
        "at = s32[{n}] iota(), iota_dimension=0\n"
        "ROOT r = {k}[{n}] scatter(x, at, y), to_apply=op, update_window_dims={{}}, inserted_window_dims={{0}},"
        " scatter_dims_to_operand_dims={{0}}, index_vector_dim=1",
    ),
    "scan": Form(
        _REDUCERS,
        "y1 = {k}[1,{n}] reshape(y)\n"
        "s = ({k}[1,{n}], {k}[{n}]) scan(y1, x), dimensions={{0}}, num_carries=1, to_apply=step\n"
        "ROOT r = {k}[{n}] get-tuple-element(s), index=1",
    ),
    "fusion": Form(_REDUCERS, "ROOT r = {k}[{n}] fusion(x, y), kind=kLoop, calls=whole"),
    "call": Form(_REDUCERS, "ROOT r = {k}[{n}] call(x, y), to_apply=whole"),
    "all-reduce": Form(_REDUCERS, "ROOT r = {k}[{n}] all-reduce(x), " + _GROUP, 2),
    "all-reduce in halves": Form(
        _REDUCERS,
        "s = {k}[{n}] all-reduce-start(x), " + _GROUP + "\nROOT r = {k}[{n}] all-reduce-done(s)",
        2,
    ),
    "reduce-scatter": Form(
        _REDUCERS,
        "z = {k}[{n},2] broadcast(x), dimensions={{0}}\n"
        "h = {k}[{n},1] reduce-scatter(z), dimensions={{1}}, " + _GROUP + "\n"
        "ROOT r = {k}[{n}] reshape(h)",
        2,
    ),
    "reduce": Form(
        _REDUCERS,
        _SIDE_BY_SIDE + "ROOT r = {k}[{n}] reduce(z, i), dimensions={{1}}, to_apply=op",
    ),
    "reduce-window": Form(
        _REDUCERS,
        _SIDE_BY_SIDE + "h = {k}[{n},1] reduce-window(z, i), window={{size=1x2}}, to_apply=op\n"
        "ROOT r = {k}[{n}] reshape(h)",
    ),
    "select-and-scatter": Form(
        _REDUCERS,
        _SIDE_BY_SIDE + "w = {k}[{n},3] broadcast(t), dimensions={{1}}\n"
        "h = {k}[{n},3] select-and-scatter(w, z, i), window={{size=1x2}}, select=keep_odd_one, scatter=op\n"
        "m = {k}[{n},1] slice(h), slice={{[0:{n}], [1:2]}}\nROOT r = {k}[{n}] reshape(m)",
    ),
    "dot": Form(
        ("multiply",),
        "x1 = {k}[{n},1] reshape(x)\ny1 = {k}[{n},1] reshape(y)\n"
        "ROOT r = {k}[{n}] dot(x1, y1), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{1}},"
        " rhs_contracting_dims={{1}}",
    ),
    "ragged-dot": Form(
        ("multiply",),
        "x1 = {k}[{n},1] reshape(x)\ny1 = {k}[{n},1,1] reshape(y)\n"
        "one = s32[] constant(1)\nsizes = s32[{n}] broadcast(one), dimensions={{}}\n"
        "h = {k}[{n},1] ragged-dot(x1, y1, sizes), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}},"
        " lhs_ragged_dims={{0}}, rhs_group_dims={{0}}\nROOT r = {k}[{n}] reshape(h)",
    ),
    "convolution": Form(
        ("multiply",),
        "x1 = {k}[1,{n}] reshape(x)\ny1 = {k}[1,{n}] reshape(y)\n"
        "h = {k}[1,{n}] convolution(x1, y1), window={{}}, dim_labels=bf_io->bf, feature_group_count={n}\n"
        "ROOT r = {k}[{n}] reshape(h)",
    ),
}
#: These add a product to zero: the sign of a zero is lost.
_SUMS = ("dot", "ragged-dot", "convolution")  # fmt: skip

_BEFORE = """
keep_odd_one {{ a.3 = {k}[] parameter(0) b.3 = {k}[] parameter(1) q = {k}[] constant({odd}) ROOT c.3 = pred[] compare(a.3, q), direction=EQ }}
op {{ a = {k}[] parameter(0) b = {k}[] parameter(1) ROOT c = {k}[] {o}(a, b) }}
whole {{ a.1 = {k}[{n}] parameter(0) b.1 = {k}[{n}] parameter(1) ROOT c.1 = {k}[{n}] {o}(a.1, b.1) }}
step {{ b.2 = {k}[{n}] parameter(0) a.2 = {k}[{n}] parameter(1) c.2 = {k}[{n}] {o}(a.2, b.2) ROOT t = ({k}[{n}], {k}[{n}]) tuple(c.2, c.2) }}
"""


def cases():
    for form, kind in itertools.product(FORMS, ALL_TYPES):
        opcodes = [o for o in FORMS[form].opcodes if kind in allowed.BINARY[o]]
        if opcodes:
            yield form, kind, opcodes


def pairs(kind):
    few = [*edges(kind), *values(kind)[:: max(1, len(values(kind)) // 4)]]
    return list(itertools.product(dict.fromkeys(map(Same, few)), repeat=2))


class Same:
    """A value that is itself alone: -0 and 0 are two, NaN is one."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return repr(self.value) == repr(other.value)

    def __hash__(self):
        return hash(repr(self.value))


def neutral(opcode, kind):
    """The start of a reduction that changes nothing (for sums of f8e8m0fnu: as little as there is)."""
    if opcode in ("multiply", "and"):
        return (
            wrap(-1, kind) if opcode == "and" and kind != "pred" else True if kind == "pred" else 1
        )
    if opcode in ("or", "xor", "add") or (kind == "pred" and opcode == "maximum"):
        if kind == "f8e8m0fnu":
            return 2.0**-127
        return False if kind == "pred" else FLOATS[kind].round(-0.0) if kind in FLOATS else 0
    if kind == "pred":
        return True
    if kind in INTEGERS:
        return bounds(kind)[opcode == "minimum"]
    form = FLOATS[kind]
    end = INF if form.flavour == "ieee" else float(form.largest)
    return end if opcode == "minimum" else 2.0**-127 if form.flavour == "unsigned" else -end


@pytest.mark.parametrize(("form", "kind", "opcodes"), list(cases()))
def test_pairs(form, kind, opcodes):
    tried = [(x.value, y.value) for x, y in pairs(kind)]
    for count in (len(tried), 1, 0):
        if count or form != "convolution":  # groups of no features are refused
            check(form, kind, opcodes, tried[:count])


def starts_matter(form, kind, opcode, pair):
    """Next to the least f8e8m0fnu the start of a sum is no nothing."""
    starting = form in ("reduce", "reduce-window", "select-and-scatter") and opcode == "add"
    return starting and kind == "f8e8m0fnu" and max(pair) < 2.0**-120


def check(form, kind, opcodes, tried):
    given = [array(kind, [pair[side] for pair in tried]) for side in (0, 1)]
    for opcode in opcodes:
        got = scalars(outputs(form, kind, opcode, given))
        wrong = [
            (pair, g, w)
            for pair, g in zip(tried, got, strict=True)
            if (w := misses(opcode, kind, pair, g))
            and not starts_matter(form, kind, opcode, pair)
            and not (form in _SUMS and g == 0 == to_zero(kind, w[0]))
        ]
        report(f"{form} {opcode}", kind, wrong)


def to_zero(kind, want):
    """Return a product after a sum with +0, which loses the sign of a zero, also of one that underflowed."""
    return FLOATS[kind].round(want) if kind in FLOATS else want


def wrap_one(kind):
    return "-1" if kind == "s1" else "1"


def odd_one_out(kind):
    """The middle one is 1: of both windows of two over these, the second's first and the first's last."""
    one = {"pred": True, "s1": -1}.get(kind, 1)
    other = {"pred": False, "f8e8m0fnu": 2}.get(kind, 0)
    return [other, one, other]


def outputs(form, kind, opcode, given):
    odd = {"pred": "true", **dict.fromkeys(COMPLEX, "(1, 0)")}.get(kind, wrap_one(kind))
    names = {"odd": odd, "k": kind, "n": len(given[0]), "o": opcode}
    devices = FORMS[form].devices
    heads = ["x", "y"] if devices == 1 else ["x"]
    lines = [f"{x} = {kind}[{len(given[0])}] parameter({i})" for i, x in enumerate(heads)]
    alone = [array(kind, [neutral(opcode, kind)], ()), array(kind, odd_one_out(kind))]
    if devices == 1:
        lines += [f"i = {kind}[] parameter(2)", f"t = {kind}[3] parameter(3)"]
    body = "\n".join([*lines, FORMS[form].lines.format(**names)])
    module = read(body, _BEFORE.format(**names), devices)
    arguments = [[*given, *alone]] if devices == 1 else [[x] for x in given]
    each = evaluate_partitions(module, arguments)
    assert all(out[0].tobytes() == each[0][0].tobytes() for out in each)
    return each[0][0]


@pytest.mark.parametrize("kind", [k for k in ALL_TYPES if k not in COMPLEX])
def test_sort_orders_edge_values(kind):
    """The order is total for floats: -0 before 0, NaN last (first where it has the sign bit)."""
    xs = values(kind)
    extra = ", type=TOTALORDER" if kind in FLOATS else ""
    before = (
        f"lt {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1)"
        f" ROOT c = pred[] compare(a, b), direction=LT{extra} }}"
    )
    for n, dims in ((len(xs), f"{len(xs)},1"), (0, "0,2")):
        body = f"x = {kind}[{dims}] parameter(0)\nROOT r = {kind}[{dims}] sort(x), dimensions={{0}}, to_apply=lt"
        check_sorted(
            kind,
            xs[:n],
            run(body, array(kind, xs[:n][::-1], tuple(map(int, dims.split(",")))), before=before)[
                0
            ],
        )


def check_sorted(kind, xs, got):
    nan_first = kind in FLOATS and FLOATS[kind].flavour == "fnuz"

    def place(x):
        return (x != x) != nan_first, 0.0 if x != x else x, math.copysign(1, x) if x == x else 0

    key = place if kind in FLOATS else int
    assert list(map(repr, scalars(got))) == list(map(repr, sorted(xs, key=key)))
