"""Results in other orders of dimensions than row major: products and all-to-alls write what their layouts say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from runtime.emit.all_to_all import exchange_of
from runtime.lowering import LOWERINGS, result_order
from runtime.program.strides import StridedView
from runtime.program.thunks import CopyThunk, Thunk
from spmd.evaluator.evaluator import evaluate
from spmd.evaluator.lockstep import evaluate_partitions
from spmd.hlo import Opcode
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.programs import assert_same, compiled, module_of, random_inputs

ORDERS = list(itertools.permutations(range(4)))

PRODUCT = """HloModule product

ENTRY main {{
  x = {kind}[2,3,5,4] parameter(0)
  y = {kind}[2,6,3,4] parameter(1)
  p = {kind}[2,3,5,6]{{{layout}}} dot(x, y), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}
  t = {kind}[2,5,3,6] transpose(p), dimensions={{0,2,1,3}}
  ROOT r = {kind}[10,18] reshape(t)
}}
"""

#: Two devices; of the operand, the cut dimension lies where ``read`` says.
EXCHANGE = """HloModule exchange, num_partitions=2

ENTRY main {{
  x = f32[{stored}] parameter(0)
  seen = f32[3,2,4,5] transpose(x), dimensions={{{back}}}
  e = f32[3,2,4,5]{{{layout}}} all-to-all(seen), channel_id=1, replica_groups={{{{1,0}}}}, dimensions={{1}}
  ROOT r = f32[3,2,4,5] negate(e)
}}
"""


def layout(order: tuple[int, ...]) -> str:
    return ",".join(map(str, reversed(order)))


def copies(thunk: Thunk) -> int:
    return isinstance(thunk, CopyThunk) + sum(map(copies, thunk.nested()))


@pytest.mark.parametrize("kind", ["f32", "bf16", "s32"])
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_products(order: tuple[int, ...], kind: str) -> None:
    text = PRODUCT.format(kind=kind, layout=layout(order))
    executable = compiled(text, keep_order=True)
    inputs = random_inputs(executable.module, 0)
    assert_same(executable.run(*inputs), evaluate(module_of(text), *inputs))


@pytest.mark.parametrize(("order", "count"), [((0, 1, 2, 3), 1), ((0, 2, 1, 3), 0)])
def test_a_result_in_its_readers_order_is_not_copied(order: tuple[int, ...], count: int) -> None:
    executable = compiled(PRODUCT.format(kind="f32", layout=layout(order)), keep_order=True)
    assert copies(executable.program.thunks) == count


def test_what_blas_cannot_write_is_row_major() -> None:
    """Neither rows nor columns of a product are contiguous in this layout, which is not kept."""
    text = PRODUCT.format(kind="f32", layout=layout((2, 3, 1, 0)))
    product = module_of(text).entry.root.operand(0).operand(0)
    assert not LOWERINGS[Opcode.DOT].writes(product, (2, 3, 1, 0))
    assert result_order(product) == (0, 1, 2, 3)


@pytest.mark.parametrize("read", [(0, 1, 2, 3), (1, 0, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0)], ids=str)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_all_to_alls(read: tuple[int, ...], order: tuple[int, ...]) -> None:
    dims = (3, 2, 4, 5)
    back = tuple(read.index(d) for d in range(4))
    text = EXCHANGE.format(
        stored=",".join(str(dims[d]) for d in read),
        back=",".join(map(str, back)),
        layout=layout(order),
    )
    executable = compiled(text, keep_order=True)
    rest = [[d for d in o if d != 1] for o in (read, order)]
    assert copies(executable.program.thunks) == (rest[0] != rest[1])
    per_device = [random_inputs(executable.module, seed) for seed in range(2)]
    want = evaluate_partitions(module_of(text), per_device)
    for got, wanted in zip(executable.run_devices(per_device), want, strict=True):
        assert_same(got, wanted)


def test_a_part_in_too_many_pieces_is_laid_out_anew() -> None:
    text = EXCHANGE.replace("3,2,4,5", "400,2,4,5").format(
        stored="400,2,4,5", back="0,1,2,3", layout="1,3,2,0"
    )
    instruction = module_of(text).entry.root.operand(0)
    view = StridedView.dense(ArrayShape(PrimitiveType.F32, instruction.dims))
    assert result_order(instruction) == (0, 2, 3, 1)
    assert exchange_of(instruction, view, (0, 2, 3, 1)) is None
    inputs = [random_inputs(module_of(text), seed) for seed in range(2)]
    got = compiled(text, keep_order=True).run_devices(inputs)
    for one, wanted in zip(got, evaluate_partitions(module_of(text), inputs), strict=True):
        np.testing.assert_array_equal(one[0], wanted[0])
