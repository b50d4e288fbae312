"""Reducers: recognized, built, and their neutral elements."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.device import ReductionKind
from spmd.hlo import HloModule
from spmd.ops.reduction import build_reducer, identity_value, reduction_kind
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module

COMBINE = {
    ReductionKind.SUM: np.add,
    ReductionKind.PRODUCT: np.multiply,
    ReductionKind.MIN: np.minimum,
    ReductionKind.MAX: np.maximum,
    ReductionKind.AND: np.bitwise_and,
    ReductionKind.OR: np.bitwise_or,
    ReductionKind.XOR: np.bitwise_xor,
}
BITWISE = (ReductionKind.AND, ReductionKind.OR, ReductionKind.XOR)


@pytest.mark.parametrize("kind", ReductionKind)
def test_a_built_reducer_is_recognized(kind: ReductionKind) -> None:
    element_type = PrimitiveType.S32
    assert reduction_kind(build_reducer(HloModule("m"), kind, element_type)) is kind


@pytest.mark.parametrize("kind", ReductionKind)
@pytest.mark.parametrize(
    "element_type",
    [
        PrimitiveType.S8,
        PrimitiveType.U16,
        PrimitiveType.F32,
        PrimitiveType.BF16,
        PrimitiveType.F8E4M3FN,
    ],
)
def test_identity_changes_nothing(kind: ReductionKind, element_type: PrimitiveType) -> None:
    if kind in BITWISE and element_type.is_floating:
        return
    dtype = element_type.numpy
    values = np.array([0, 1, 2, 3, 100], dtype)
    neutral = np.array(identity_value(kind, element_type), dtype)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(COMBINE[kind](values, neutral).astype(dtype), values)


def test_reducers_that_are_not_plain() -> None:
    module = parse_module("""HloModule t
twice {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, x)
}
first {
  u = f32[] parameter(0)
  v = f32[] parameter(1)
  ROOT w = f32[] copy(u)
}
annotated {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  s = f32[] add(a, b)
  ROOT c = f32[] custom-call(s), custom_call_target="Sharding", sharding={replicated}
}
ENTRY e { ROOT p = f32[] parameter(0) }
""")
    kinds = {c.name: reduction_kind(c) for c in module.computations}
    assert kinds["twice"] is None
    assert kinds["first"] is None
    assert kinds["annotated"] is ReductionKind.SUM
