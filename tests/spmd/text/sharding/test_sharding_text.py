"""HloSharding, replica groups and XLA's mesh text."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spmd.errors import HloParseError
from spmd.sharding import HloSharding, ShardingKind, SubgroupType
from spmd.text.lexer import Scanner
from spmd.text.sharding.replica_groups_text import format_replica_groups, read_replica_groups
from spmd.text.sharding.sharding_text import parse_sharding

WRITTEN_BACK = [
    "{replicated}",
    "{maximal device=1}",
    "{manual}",
    "{unknown}",
    "{unreduced}",
    "{devices=[2,1]0,1}",
    "{devices=[2,2]<=[4]}",
    "{devices=[2,2]<=[2,2]T(1,0)}",
    "{devices=[1,6]<=[2,3]T(0,1)}",
    "{devices=[2,1,2]<=[4] last_tile_dim_replicate}",
    "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}",
    "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}",
    "{devices=[2,2]<=[4] shard_as 3}",
    "{replicated shard_like 3}",
    '{replicated metadata={op_name="a"}}',
    '{devices=[2]<=[2] metadata={{op_name="a"}, {op_name="b"}}}',
    "{{replicated}, {devices=[2]<=[2]}}",
    "{}",
    "{mesh['x'=2,'y'=4], [{'x'}, {'y'}]}",
    "{mesh['x'=2,'y'=4], [{'x', ?}, {?}]}",
    "{maximal_mesh[device_id=1]}",
]


@pytest.mark.parametrize("text", WRITTEN_BACK)
def test_written_back(text: str) -> None:
    sharding = parse_sharding(text)
    assert str(sharding) == text
    assert parse_sharding(str(sharding)) == sharding


def test_tuple_takes_index_comments() -> None:
    text = "{" + ", ".join(["{replicated}"] * 12) + "}"
    sharding = parse_sharding(text)
    assert len(sharding.elements) == 12
    assert "/*index=5*/" in str(sharding)
    assert "/*index=10*/" in str(sharding)
    assert parse_sharding(str(sharding)) == sharding


def test_blanks_and_comments() -> None:
    assert parse_sharding("{ devices = [ 2, 2 ] <= [2,2] T(1,0) }") == parse_sharding(
        "{devices=[2,2]<=[2,2]T(1,0)}"
    )
    assert parse_sharding("{/*x*/{replicated} , {manual}}").elements[1].kind is ShardingKind.MANUAL


def test_a_million_devices_stay_symbolic() -> None:
    sharding = parse_sharding("{devices=[1024,1024]<=[1024,1024]T(1,0)}")
    assert sharding.tiles is not None
    assert sharding.tiles.devices is None
    assert sharding.num_devices == 1 << 20


# ---- the named form
@pytest.mark.parametrize(
    ("named", "positional"),
    [
        ("{mesh['x'=2,'y'=4], [{'x'}, {'y'}]}", "{devices=[2,4]<=[8]}"),
        ("{mesh['x'=2,'y'=4] [{'x'}, {'y'}]}", "{devices=[2,4]<=[8]}"),
        ('{mesh["x"=2,"y"=4], [{"y"}, {"x"}]}', "{devices=[4,2]<=[2,4]T(1,0)}"),
        ("{mesh['x'=2,'y'=4], [{'x'}, {}]}", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
        (
            "{mesh['x'=2,'y'=4], [{'y'}, {}]}",
            "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
        ),
        ('{mesh["x"=2,"y"=4], [{"x", "y"}, {}]}', "{devices=[8,1]<=[8]}"),
        ("{mesh['x'=2,'y'=4], [{'y','x'}, {}]}", "{devices=[8,1]<=[2,4]T(1,0)}"),
        (
            "{mesh['x'=4], [{'x':(1)2}, {}]}",
            "{devices=[2,1,2]<=[4] last_tile_dim_replicate}",
        ),
        (
            "{mesh['x'=4], [{'x':(2)2}, {'x':(1)2}]}",
            "{devices=[2,2]<=[2,2]T(1,0)}",
        ),
        (
            "{mesh['x'=2,'y'=4], [{'y'}, {}], manual={'x'}}",
            "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dims={manual}}",
        ),
        ("{mesh['x'=2,'y'=4], [{}, {}], manual={'x','y'}}", "{manual}"),
        ("{mesh['x'=2,'y'=4], [{}, {}], replicated={'x'}}", "{replicated}"),
        (
            "{mesh['x'=2,'y'=2], device_ids=(3,2,1,0), [{'x'}, {'y'}]}",
            "{devices=[2,2]3,2,1,0}",
        ),
        (
            "{mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)), [{'x'}, {'y'}]}",
            "{devices=[2,2]0,2,1,3}",
        ),
        ("{mesh['x'=2], replicated}", "{replicated}"),
        ("{mesh['x'=2], manual}", "{manual}"),
        ("{mesh['x'=2], unreduced}", "{unreduced}"),
        ("{mesh[], [{}, {}]}", "{replicated}"),
    ],
)
def test_named_form_means_tiles(named: str, positional: str) -> None:
    found, wanted = parse_sharding(named), parse_sharding(positional)
    assert (found.kind, found.tiles, found.subgroup_types) == (
        wanted.kind,
        wanted.tiles,
        wanted.subgroup_types,
    )


def owners(mesh: dict[str, int], dims: list[list[str]]) -> list[set[int]]:
    """Return the devices of each tile by definition, tiles in row-major order.

    The axes of a dimension are major to minor.
    """
    grid = np.arange(math.prod(mesh.values())).reshape(tuple(mesh.values()))
    names = list(mesh)
    tiles: list[set[int]] = []
    for tile in itertools.product(*(range(math.prod(mesh[a] for a in dim)) for dim in dims)):
        fixed: dict[str, int] = {}
        for index, dim in zip(tile, dims, strict=True):
            for axis in reversed(dim):
                index, fixed[axis] = divmod(index, mesh[axis])
        where = tuple(fixed.get(name, slice(None)) for name in names)
        tiles.append({int(d) for d in np.asarray(grid[where]).reshape(-1)})
    return tiles


@settings(max_examples=150)
@given(data=st.data())
def test_named_form_equals_its_definition(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    mesh = {f"a{i}": size for i, size in enumerate(sizes)}
    shuffled = data.draw(st.permutations(list(mesh)))
    rank = data.draw(st.integers(1, 3))
    dims: list[list[str]] = [[] for _ in range(rank)]
    for axis in shuffled[: data.draw(st.integers(0, len(mesh)))]:
        dims[data.draw(st.integers(0, rank - 1))].append(axis)
    axes = ",".join(f"'{name}'={size}" for name, size in mesh.items())
    written = ", ".join("{" + ", ".join(f"'{a}'" for a in dim) + "}" for dim in dims)
    sharding = parse_sharding(f"{{mesh[{axes}], [{written}]}}")
    wanted = owners(mesh, dims)
    if sharding.kind is ShardingKind.REPLICATED:
        assert len(wanted) == 1
        return
    assert sharding.tiles is not None
    assert len(sharding.tile_dims) == rank
    ids = sharding.tiles.device_ids().reshape(len(wanted), -1)
    assert [set(row.tolist()) for row in ids] == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{foo}", "unknown sharding 'foo'"),
        ("{devices=[2,2]0,1}", "expected 4 device ids, found 2"),
        ("{devices=[2,2]<=[8]}", "hold different numbers of devices"),
        ("{devices=[2,2]<=[2,2]T(0,0)}", "expected a permutation"),
        ("{devices=[0,2]<=[0]}", "at least 1"),
        ("{devices=[2]<=[2] last_tile_dims={odd}}", "unknown subgroup type 'odd'"),
        ("{devices=[2]<=[2] last_tile_dims={manual,manual}}", "2 subgroup types for 1"),
        ("{replicated", "expected '}'"),
        ("{replicated} x", "expected the end, found 'x'"),
        ("{mesh['x'=2], [{'z'}]}", "the mesh has no axis 'z'"),
        ("{mesh['x'=2], [{'x'}, {'x'}]}", "an axis is used twice"),
        ("{mesh['x'=4], [{'x':(1)3}]}", "does not divide axis"),
        ("{mesh['x'=12], [{'x':(1)4}, {'x':(3)2}]}", "sub-axes overlap"),
        ("{mesh['x'=2], device_ids=(0,1,2), [{'x'}]}", "expected 2 device ids, found 3"),
        ("{mesh['x'=999999999,'y'=999999999], [{'x'}]}", "out of range"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(HloParseError) as caught:
        parse_sharding(text)
    assert message in str(caught.value)


def test_subgroups_by_kind() -> None:
    sharding = parse_sharding("{mesh['x'=2,'y'=2,'z'=2], [{'z'}], manual={'y'}, unreduced={'x'}}")
    assert sharding.subgroup_types == (SubgroupType.MANUAL, SubgroupType.UNREDUCED)
    assert isinstance(sharding, HloSharding)
    assert sharding.tiles is not None
    assert sharding.tiles.device_ids().tolist() == [[[0, 4], [2, 6]], [[1, 5], [3, 7]]]


# ---- replica groups
@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("{{0},{1,2,3}}", ((0,), (1, 2, 3))),
        ("{{0,1},{2,-1}}", ((0, 1), (2,))),
        ("{}", ((0, 1, 2, 3),)),
        ("[2,2]<=[4]", ((0, 1), (2, 3))),
        ("[2,2]<=[2,2]T(1,0)", ((0, 2), (1, 3))),
        ("mesh['x'=2,'y'=2] {'y'}", ((0, 1), (2, 3))),
        ("mesh['x'=2,'y'=2] {'x'}", ((0, 2), (1, 3))),
        ("mesh['x'=4] {'x':(1)2}", ((0, 2), (1, 3))),
        ("mesh['x'=2,'y'=2], device_ids=(3,2,1,0) {'y'}", ((3, 2), (1, 0))),
        ("mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'y'}", ((0, 2), (1, 3))),
    ],
)
def test_replica_groups(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    scanner = Scanner.of(text)
    found = read_replica_groups(scanner)
    scanner.finish()
    assert found.expand(4) == groups
    assert format_replica_groups(found) == text
