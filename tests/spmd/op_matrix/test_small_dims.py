"""Empty and size-1 dimensions: every elementwise opcode on every type it takes, and what else keeps or moves elements.

An elementwise operation treats each element alone, so the elements of a vector are the definition for every shape.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from spmd.evaluator import evaluate, evaluate_partitions
from tests.spmd.op_matrix import allowed
from tests.spmd.op_matrix.run import array, read, run
from tests.spmd.op_matrix.test_convert import FLOATS
from tests.spmd.op_matrix.values import ALL_TYPES, rounds, values

SHAPES = ((), (1,), (1, 1), (0,), (2, 0), (0, 1))


def text_of(dims):
    return ",".join(map(str, dims))


def call(opcode, operands, result, extra=""):
    """The outputs of opcode for every shape, in one program, and of a vector of all the operands' elements."""
    lines, arguments, names = [], [], []
    n = len(operands[0][1])
    for number, dims in enumerate([(n,), *SHAPES]):
        count = int(np.prod(dims))
        shapes = []
        for i, (kind, elements) in enumerate(operands):
            shapes.append(f"x{number}.{i}")
            lines.append(f"{shapes[-1]} = {kind}[{text_of(dims)}] parameter({len(arguments)})")
            arguments.append(array(kind, elements[:count], dims))
        names.append((f"r{number}", f"{result}[{text_of(dims)}]"))
        lines.append(f"{names[-1][0]} = {names[-1][1]} {opcode}({', '.join(shapes)}){extra}")
    shape, parts = ", ".join(s for _, s in names), ", ".join(x for x, _ in names)
    return run("\n".join([*lines, f"ROOT t = ({shape}) tuple({parts})"]), *arguments)


def check(opcode, operands, result, extra=""):
    whole, *small = call(opcode, operands, result, extra)
    for dims, out in zip(SHAPES, small, strict=True):
        assert out.shape == dims, (opcode, result)
        assert out.dtype == whole.dtype, (opcode, result)
        assert out.tobytes() == whole[: out.size].tobytes(), (opcode, result, dims)


@pytest.mark.parametrize("opcode", allowed.UNARY)
def test_unary(opcode):
    for kind in allowed.UNARY[opcode]:
        check(opcode, [(kind, values(kind))], allowed.result_type(opcode, kind))


@pytest.mark.parametrize("opcode", allowed.BINARY)
def test_binary(opcode):
    for kind in allowed.BINARY[opcode]:
        xs = values(kind)
        check(opcode, [(kind, xs), (kind, xs[::-1])], allowed.result_type(opcode, kind))


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_others(kind):
    xs = values(kind)
    both = [(kind, xs), (kind, xs[::-1])]
    check("compare", both, "pred", ", direction=EQ")
    check("select", [("pred", [i % 2 == 0 for i in range(len(xs))]), *both], kind)
    for target in ("pred", "s4", "u64", "f8e5m2", "f32", "c64"):
        check("convert", [(kind, xs)], target)
    if not kind.startswith("c"):
        check("clamp", [both[0], both[1], both[0]], kind)
    if kind in FLOATS:
        check("reduce-precision", [(kind, xs)], kind, ", exponent_bits=4, mantissa_bits=1")


#: result and line for x of (1, 3, 1) and e of (2, 0); the elements keep their order.
_KEEP = {
    "copy": ("1,3,1", "copy(x)", "2,0", "copy(e)"),
    "transpose": ("3,1,1", "transpose(x), dimensions={1,2,0}", "0,2", "transpose(e), dimensions={1,0}"),
    "reverse": ("1,3,1", "reverse(x), dimensions={0,2}", "2,0", "reverse(e), dimensions={0,1}"),
    "broadcast": ("1,3,1,1", "broadcast(x), dimensions={0,1,3}", "2,3,0", "broadcast(e), dimensions={0,2}"),
    "bitcast": ("3", "bitcast(x)", "0", "bitcast(e)"),
    "concatenate": ("1,3,1", "concatenate(x), dimensions={0}", "4,0", "concatenate(e, e), dimensions={0}"),
    "pad": ("1,3,1", "pad(x, z), padding=0_0x0_0x0_0", "2,0", "pad(e, z), padding=1_-1x0_0"),
    "dynamic-slice": (
        "1,3,1", "dynamic-slice(x, i, i, i), dynamic_slice_sizes={1,3,1}", "1,0", "dynamic-slice(e, i, i), dynamic_slice_sizes={1,0}"
    ),
    "gather": (
        "1,3", "gather(x, j), offset_dims={1}, collapsed_slice_dims={0,2}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3,1}",
        "1,0", "gather(e, j), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,0}",
    ),
    "opt-barrier": ("1,3,1", "opt-barrier(x)", "2,0", "opt-barrier(e)"),
    "map": ("1,3,1", "map(x), dimensions={0,1,2}, to_apply=same", "2,0", "map(e), dimensions={0,1}, to_apply=same"),
    "fusion": ("1,3,1", "fusion(x), kind=kLoop, calls=large", "2,0", "fusion(e), kind=kLoop, calls=empty"),
    "call": ("1,3,1", "call(x), to_apply=large", "2,0", "call(e), to_apply=empty"),
    "conditional": ("1,3,1", "conditional(i, x, x), branch_computations={large, large}", "2,0", "conditional(i, e, e), branch_computations={empty, empty}"),
    "while": ("1,3,1", "while(x), condition=large_done, body=large", "2,0", "while(e), condition=empty_done, body=empty"),
    "copy-start": ("1,3,1", "copy-done(copy-start(x))", "2,0", "copy-done(copy-start(e))"),
    "custom-call": (
        "1,3,1", 'custom-call(x), custom_call_target="Sharding", sharding={replicated}',
        "2,0", 'custom-call(e), custom_call_target="Sharding", sharding={replicated}',
    ),
    "add-dependency": ("1,3,1", "add-dependency(x, after-all())", "2,0", "add-dependency(e, after-all())"),
    "tuple": ("1,3,1", "get-tuple-element(tuple(x, e)), index=0", "2,0", "get-tuple-element(tuple(x, e)), index=1"),
    "domain": (
        "1,3,1", 'domain(x), domain={kind="sharding", entry={replicated}, exit={replicated}}',
        "2,0", 'domain(e), domain={kind="sharding", entry={replicated}, exit={replicated}}',
    ),
}  # fmt: skip
_BEFORE = (
    "same {{ ROOT a = {k}[] parameter(0) }}\nlarge {{ ROOT b = {k}[1,3,1] parameter(0) }}\n"
    "empty {{ ROOT c = {k}[2,0] parameter(0) }}\n"
    "large_done {{ d = {k}[1,3,1] parameter(0) ROOT f = pred[] constant(false) }}\n"
    "empty_done {{ g = {k}[2,0] parameter(0) ROOT h = pred[] constant(false) }}\n"
)


@pytest.mark.parametrize("name", _KEEP)
def test_moves_keep_their_order(name):
    first, line, second, empty_line = _KEEP[name]
    for kind in ALL_TYPES:
        body = (
            f"x = {kind}[1,3,1] parameter(0)\ne = {kind}[2,0] parameter(1)\nz = {kind}[] parameter(2)\n"
            f"i = s32[] constant(0)\nj = s32[1,1] constant({{{{0}}}})\n"
            f"r = {kind}[{first}] {line}\ns = {kind}[{second}] {empty_line}\n"
            f"ROOT t = ({kind}[{first}], {kind}[{second}]) tuple(r, s)"
        )
        module = read(body, _BEFORE.format(k=kind))
        for elements, value in rounds(kind, (3, 1)):
            given = [
                array(kind, elements, (1, 3, 1)),
                array(kind, [], (2, 0)),
                array(kind, value, ()),
            ]
            got, nothing = evaluate(module, *given)
            assert got.tobytes() == given[0].tobytes(), (name, kind)
            assert (nothing.size, nothing.dtype) == (0, got.dtype), (name, kind)


#: Exchanges, and what device d of two has afterwards of x0 and x1 (3 elements each; all-to-all and broadcast alike).
_EXCHANGES = {
    "all-gather": ("6", "all-gather(x), replica_groups={{0,1}}, channel_id=1, use_global_device_ids=true, dimensions={0}", lambda x, d: [*x[0], *x[1]]),
    "all-to-all": ("2", "all-to-all(h), replica_groups={{0,1}}, channel_id=1, dimensions={0}", lambda x, d: [x[0][d], x[1][d]]),
    "collective-permute": ("3", "collective-permute(x), source_target_pairs={{0,1},{1,0}}, channel_id=1", lambda x, d: x[1 - d]),
    "collective-broadcast": ("3", "collective-broadcast(x), replica_groups={{1,0}}, channel_id=1", lambda x, d: x[1]),
}  # fmt: skip
_HALVES = {
    "all-gather-start": (
        ("s = ({k}[3], {k}[6]) all-gather-start(x), replica_groups={{0,1}}, channel_id=1, use_global_device_ids=true, dimensions={0}\n"
        "ROOT r = {k}[6] all-gather-done(s)"), lambda x, d: [*x[0], *x[1]],
    ),
    "collective-permute-start": (
        ("s = ({k}[3], {k}[3], u32[], u32[]) collective-permute-start(x), source_target_pairs={{0,1},{1,0}}, channel_id=1\n"
        "ROOT r = {k}[3] collective-permute-done(s)"), lambda x, d: x[1 - d],
    ),
    "async-start": (
        ("s = (({k}[3]), {k}[2], s32[]) slice-start(x), slice={[1:3]}\nu = (({k}[3]), {k}[2], s32[]) async-update(s)\n"
        "ROOT r = {k}[2] async-done(u)"), lambda x, d: x[d][1:],
    ),
}  # fmt: skip


def with_columns(text, columns):
    """The same on arrays of rows: [3] is [3,columns], and slices take all columns."""
    text = re.sub(r"\[(\d)\]", rf"[\1,{columns}]", text)
    return re.sub(r"\[(\d:\d)\]", rf"[\1],[0:{columns}]", text)


@pytest.mark.parametrize("name", [*_EXCHANGES, *_HALVES])
@pytest.mark.parametrize("columns", [1, 0])
def test_exchanges(name, columns):
    for kind in ALL_TYPES:
        if name in _EXCHANGES:
            size, line, moved = _EXCHANGES[name]
            lines = f"h = {kind}[2] slice(x), slice={{[0:2]}}\nROOT r = {kind}[{size}] {line}"
        else:
            text, moved = _HALVES[name]
            lines = text.replace("{k}", kind)
        body = with_columns(f"x = {kind}[3] parameter(0)\n{lines}", columns)
        module = read(body, devices=2)
        for x in rounds(kind, (3, 3)):
            rows = [array(kind, part * columns, (3, columns)) for part in x]
            each = evaluate_partitions(module, [[part] for part in rows])
            for device, (out,) in enumerate(each):
                wanted = list(moved(x, device))
                want = array(kind, wanted * columns, (len(wanted), columns))
                assert (out.shape, out.tobytes()) == (want.shape, want.tobytes()), (name, kind)
