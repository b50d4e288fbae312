"""shard_alike in both spellings: values that no op connects end with one sharding."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from partitioner.propagate_module import propagate_module
from spmd.errors import ShardingError
from spmd.hlo import Opcode
from tests.differential.equivalence import check_equivalence

MESH = 'frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=2]>}}'
FREE = "allow_spmd_sharding_propagation_to_parameters={false,true}"

#: The module to which JAX lowers shard_alike(a * 2, sin(b)).
SHARDY = f"""HloModule alike, {FREE}, {MESH}
ENTRY main {{
  a = f32[4,6] parameter(0), frontend_attributes={{xla.sdy.sharding="#sdy.sharding<@mesh, [{{\\"x\\"}}, {{\\"y\\"}}]>"}}
  b = f32[4,6] parameter(1)
  d = f32[4,6] add(a, a)
  g = () custom-call(d), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true, frontend_attributes={{xla.sdy.sharding_group_id="0 : i64"}}
  s = f32[4,6] sine(b)
  h = () custom-call(s), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true, frontend_attributes={{xla.sdy.sharding_group_id="0 : i64"}}
  ROOT r = (f32[4,6], f32[4,6]) tuple(d, s)
}}
"""

GSPMD = f"""HloModule alike, {FREE}
ENTRY main {{
  a = f32[4,6] parameter(0), sharding={{devices=[2,2]<=[4]}}
  b = f32[4,6] parameter(1)
  d = f32[4,6] add(a, a)
  g = f32[4,6] custom-call(d), custom_call_target="Sharding", sharding={{unknown GROUP 7}}
  s = f32[4,6] sine(b)
  h = f32[4,6] custom-call(s), custom_call_target="Sharding", sharding={{unknown GROUP 7}}
  ROOT r = (f32[4,6], f32[4,6]) tuple(g, h)
}}
"""

INPUTS = [np.arange(24, dtype=np.float32).reshape(4, 6), np.ones((4, 6), np.float32)]


@pytest.mark.parametrize(
    "text",
    [SHARDY, GSPMD.replace("GROUP", "shard_as"), GSPMD.replace("GROUP", "shard_like")],
    ids=["shardy", "shard_as", "shard_like"],
)
def test_members_are_sharded_alike(text: str) -> None:
    found = check_equivalence(spmd.parse(text), 4, INPUTS)
    a, b = found.entry.parameters
    assert str(a.sharding) == str(b.sharding) == "{devices=[2,2]<=[4]}"
    assert str(found.entry.root.sharding) == "{{devices=[2,2]<=[4]}, {devices=[2,2]<=[4]}}"
    assert not [i for i in found.all_instructions() if i.opcode is Opcode.CUSTOM_CALL]


def test_the_other_way_round() -> None:
    """A sharding also goes from the later member to the earlier one."""
    text = GSPMD.replace("GROUP", "shard_as").replace("tuple(g, h)", "tuple(h, g)")
    found = propagate_module(spmd.parse(text.replace("{false,true}", "{true}")), 4)
    assert str(found.entry.parameters[1].sharding) == "{devices=[2,2]<=[4]}"


def conflicting(group: str) -> str:
    """Dimension 0 of one member is asked for by axis 0, of the other by axis 1, each by an op of its own."""
    return f"""HloModule contested
ENTRY main {{
  a = f32[4] parameter(0), sharding={{devices=[2,2]<=[4] last_tile_dim_replicate}}
  b = f32[4] parameter(1), sharding={{devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}}
  na = f32[4] negate(a)
  nb = f32[4] negate(b)
  g = f32[4] custom-call(na), custom_call_target="Sharding", sharding={{unknown {group} 0}}
  h = f32[4] custom-call(nb), custom_call_target="Sharding", sharding={{unknown {group} 0}}
  ROOT r = (f32[4], f32[4]) tuple(g, h)
}}
"""


def test_shard_as_ends_in_one_sharding_and_shard_like_need_not() -> None:
    inputs = [np.arange(4, dtype=np.float32)] * 2
    found = {
        group: check_equivalence(spmd.parse(conflicting(group)), 4, inputs)
        for group in ("shard_as", "shard_like")
    }
    ends = {group: [str(e) for e in m.entry.root.sharding.elements] for group, m in found.items()}  # type: ignore[union-attr]
    assert ends["shard_as"][0] == ends["shard_as"][1]
    assert ends["shard_like"][0] != ends["shard_like"][1]


def test_an_annotation_binds_a_member() -> None:
    text = SHARDY.replace("parameter(1)", "parameter(1)").replace(
        "tuple(d, s)", "tuple(d, s), sharding={{devices=[2,2]<=[4]}, {replicated}}"
    )
    found = check_equivalence(spmd.parse(text), 4, INPUTS)
    assert str(found.entry.root.sharding) == "{{devices=[2,2]<=[4]}, {replicated}}"


def test_members_of_other_sizes_are_refused() -> None:
    text = SHARDY.replace("f32[4,6] sine(b)", "f32[4,6] sine(b)\n  v = f32[24] reshape(s)").replace(
        "custom-call(s)", "custom-call(v)"
    )
    with pytest.raises(ShardingError, match=r"sharding group 0: v is f32\[24\], d is f32\[4,6\]"):
        spmd.partition(spmd.parse(text), 4)


def test_a_group_needs_a_number() -> None:
    with pytest.raises(ShardingError, match="sharding_group_id to be a number"):
        spmd.partition(spmd.parse(SHARDY.replace('"0 : i64"', '"zero"')), 4)
