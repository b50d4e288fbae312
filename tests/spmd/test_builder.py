"""The builder: inferred shapes, shared reducers, fresh channels, clean failures."""

from __future__ import annotations

import pytest

from spmd.builder import Builder
from spmd.device import IotaTile, ReductionKind, ReplicaGroups
from spmd.errors import ShapeError
from spmd.hlo import HloModule
from spmd.ops.attrs import DotAttrs
from spmd.shape import PrimitiveType, array
from spmd.source_target_pairs import ListedPairs
from spmd.verifier import verify

F32, U32 = PrimitiveType.F32, PrimitiveType.U32


@pytest.fixture
def builder() -> Builder:
    module = HloModule("m")
    module.num_partitions = 4
    module.states_partitions = True
    module.entry = module.new_computation("main")
    return Builder(module.entry)


def test_a_program_of_every_kind_verifies(builder: Builder) -> None:
    b = builder
    x, y = b.parameter(0, array(F32, 8, 16)), b.parameter(1, array(F32, 16, 4))
    groups = ReplicaGroups(iota=IotaTile.of((2, 2)))
    product = b.dot(x, y, DotAttrs((1,), (0,)))
    total = b.all_reduce(product, groups, ReductionKind.SUM)
    gathered = b.all_gather(total, groups, 0)
    shared = b.reduce_scatter(gathered, groups, 0, ReductionKind.SUM)
    exchanged = b.all_to_all(shared, ReplicaGroups(iota=IotaTile.of((1, 4))), 0)
    moved = b.collective_permute(exchanged, ListedPairs(((0, 1), (1, 0))))
    row = b.dynamic_slice(moved, [b.partition_id(), b.scalar(U32, 0)], (1, 4))
    biggest = b.reduce(row, (0,), ReductionKind.MAX)
    padded = b.pad(biggest, b.scalar(F32, 0), (1,), (1,))
    b.computation.root = b.tuple([padded, b.convert(b.iota(U32, (3,), 0), F32)])
    verify(b.computation.module)  # type: ignore[arg-type]
    assert str(b.computation.root.shape) == "(f32[6], f32[3])"


def test_reducers_are_made_once_per_kind_and_type(builder: Builder) -> None:
    x = builder.parameter(0, array(F32, 4))
    first = builder.reduce(x, (0,), ReductionKind.SUM)
    again = Builder(builder.computation).reduce(x, (0,), ReductionKind.SUM)
    other = builder.reduce(x, (0,), ReductionKind.MAX)
    assert first.to_apply is again.to_apply
    assert first.to_apply is not other.to_apply


def test_channels_are_fresh(builder: Builder) -> None:
    x = builder.parameter(0, array(F32, 4))
    groups = ReplicaGroups(iota=IotaTile.of((1, 4)))
    channels = [builder.all_reduce(x, groups, ReductionKind.SUM).attrs.channel_id for _ in range(2)]  # type: ignore[attr-defined]
    more = Builder(builder.computation).all_reduce(x, groups, ReductionKind.SUM)
    assert [*channels, more.attrs.channel_id] == [1, 2, 3]  # type: ignore[attr-defined]


def test_a_refused_instruction_leaves_no_trace(builder: Builder) -> None:
    x, y = builder.parameter(0, array(F32, 4)), builder.parameter(1, array(F32, 5))
    before = builder.computation.instructions
    with pytest.raises(ShapeError, match="one shape"):
        builder.add(x, y)
    assert builder.computation.instructions == before
    assert x.users == ()
