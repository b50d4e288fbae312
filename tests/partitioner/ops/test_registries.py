"""Every opcode that can stand in a logical module means something to the partitioner; rules keep their invariants."""

from __future__ import annotations

import numpy as np
import pytest
from rule_notation import sizes_agree

import partitioner.ops  # noqa: F401 - fills the registries
import spmd
from partitioner.registry import PARTITIONERS, PROPAGATORS, SHARDING_RULES, rule_of
from spmd.device import ReductionKind
from spmd.hlo import Opcode
from spmd.ops.reduction import identity_value
from spmd.shape import PrimitiveType
from tests.differential.op_programs import OPS, Draw

#: Refused by name (host transfers, tokens, async pairs: they come after partitioning), or handled by the driver.
ELSEWHERE = {
    Opcode.PARAMETER,
    Opcode.CALL,
    Opcode.FUSION,
    Opcode.SCAN,
    Opcode.AFTER_ALL,
    Opcode.INFEED,
    Opcode.OUTFEED,
    Opcode.SEND,
    Opcode.SEND_DONE,
    Opcode.RECV,
    Opcode.RECV_DONE,
    Opcode.COPY_START,
    Opcode.COPY_DONE,
    Opcode.ASYNC_START,
    Opcode.ASYNC_UPDATE,
    Opcode.ASYNC_DONE,
    Opcode.ALL_GATHER_START,
    Opcode.ALL_GATHER_DONE,
    Opcode.ALL_REDUCE_START,
    Opcode.ALL_REDUCE_DONE,
    Opcode.COLLECTIVE_PERMUTE_START,
    Opcode.COLLECTIVE_PERMUTE_DONE,
    Opcode.RAGGED_ALL_TO_ALL,
}


def test_every_opcode_has_a_meaning() -> None:
    known = {*SHARDING_RULES, *PARTITIONERS, *PROPAGATORS}
    assert [op.value for op in Opcode if op not in known | ELSEWHERE] == []


@pytest.mark.parametrize("name", OPS)
def test_factors_multiply_to_sizes_and_stand_once(name: str) -> None:
    for trial in range(5):
        module = spmd.parse(OPS[name](Draw(np.random.default_rng(trial))))
        for instruction in module.entry.instructions:
            rule = rule_of(instruction)
            if rule is not None:
                assert sizes_agree(instruction, rule), instruction.name


TYPES = [t for t in PrimitiveType if t not in (PrimitiveType.S1, PrimitiveType.U1)]
COMBINE = {
    ReductionKind.SUM: np.add,
    ReductionKind.PRODUCT: np.multiply,
    ReductionKind.MIN: np.minimum,
    ReductionKind.MAX: np.maximum,
    ReductionKind.AND: np.bitwise_and,
    ReductionKind.OR: np.bitwise_or,
    ReductionKind.XOR: np.bitwise_xor,
}
CASES = [
    (kind, element_type)
    for kind in ReductionKind
    for element_type in TYPES
    if not (kind in (ReductionKind.MIN, ReductionKind.MAX) and element_type.is_complex)
    and not (
        kind in (ReductionKind.AND, ReductionKind.OR, ReductionKind.XOR)
        and (element_type.is_floating or element_type.is_complex)
    )
    # f8e8m0fnu has no zero.
    and not (element_type is PrimitiveType.F8E8M0FNU and kind is ReductionKind.SUM)
]


@pytest.mark.parametrize(("kind", "element_type"), CASES, ids=str)
def test_identity_changes_nothing(kind: ReductionKind, element_type: PrimitiveType) -> None:
    plain = [0, 1, 3] if element_type.is_unsigned_integer else [0, 1, -2]
    values = np.array([0.5, 1, 4] if element_type is PrimitiveType.F8E8M0FNU else plain)
    values = values.astype(element_type.numpy)
    identity = np.full(values.shape, identity_value(kind, element_type), element_type.numpy)
    if element_type.bits < 8:
        # NumPy has no bitwise functions for these types; their values fit wider ones.
        values, identity = values.astype(np.int64), identity.astype(np.int64)
    assert (COMBINE[kind](identity, values) == values).all()
