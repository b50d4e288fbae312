"""send, recv and ragged-all-to-all between two devices: every element type, every edge value, no rows and one."""

from __future__ import annotations

import pytest

from spmd.evaluator import evaluate_partitions
from tests.spmd.op_matrix.run import array, read
from tests.spmd.op_matrix.values import ALL_TYPES, edges

_SWAP = "channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0}}}"


def two(kind):
    """Return the values of either device: all edge values, forwards and backwards."""
    return edges(kind), edges(kind)[::-1]


@pytest.mark.parametrize("columns", [1, 0])
@pytest.mark.parametrize("kind", ALL_TYPES)
def test_a_swap(kind, columns):
    n = len(edges(kind))
    whole = f"{kind}[{n},{columns}]"
    body = (
        f"x = {whole} parameter(0)\nt = token[] after-all()\n"
        f"s = ({whole}, u32[], token[]) send(x, t), {_SWAP}\nq = token[] send-done(s), channel_id=1\n"
        f"r = ({whole}, u32[], token[]) recv(t), {_SWAP}\nd = ({whole}, token[]) recv-done(r), channel_id=1\n"
        f"ROOT y = {whole} get-tuple-element(d), index=0"
    )
    given = [array(kind, x * columns, (n, columns)) for x in two(kind)]
    each = evaluate_partitions(read(body, devices=2), [[x] for x in given])
    for (got,), want in zip(each, given[::-1], strict=True):
        assert (got.shape, got.tobytes()) == (want.shape, want.tobytes()), kind


@pytest.mark.parametrize("columns", [1, 0])
@pytest.mark.parametrize("kind", ALL_TYPES)
def test_ragged_exchange(kind, columns):
    """Device d sends its first row to device 0 and the others to device 1, which write them at row 0 or n - 1 by sender."""
    n = len(edges(kind))
    x, y = two(kind)
    rows = 2 * n - 2
    body = (
        f"x = {kind}[{n},{columns}] parameter(0)\no = {kind}[{rows},{columns}] parameter(1)\n"
        f"start = s32[2] constant({{0,1}})\nsize = s32[2] constant({{1,{n - 1}}})\n"
        "place = s32[2] parameter(2)\nhere = s32[2] parameter(3)\n"
        f"ROOT r = {kind}[{rows},{columns}] ragged-all-to-all(x, o, start, size, place, here), channel_id=1, replica_groups={{{{0,1}}}}"
    )
    before = [edges(kind)[i % n] for i in range(rows)]
    output = array(kind, before * columns, (rows, columns))
    received = [[1, 1], [n - 1, n - 1]]
    arguments = [
        [array(kind, mine * columns, (n, columns)), output, array("s32", [(n - 1) * d] * 2), array("s32", received[d])]
        for d, mine in enumerate((x, y))
    ]  # fmt: skip
    (first,), (second,) = evaluate_partitions(read(body, devices=2), arguments)
    at_first = [x[0], *before[1 : n - 1], y[0], *before[n:]] if n > 1 else before
    at_second = [*x[1:], *y[1:]]
    for got, rows_wanted in ((first, at_first), (second, at_second)):
        want = array(kind, rows_wanted * columns, (rows, columns))
        assert got.tobytes() == want.tobytes(), kind
