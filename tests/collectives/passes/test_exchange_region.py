"""Regions around all-to-alls: what belongs to them, what others read of them, and what they share with others."""

from __future__ import annotations

from collectives.passes.exchange_region import ExchangeRegion, exchange_regions
from spmd.hlo import HloModule, Opcode
from spmd.text.parser import parse_module

TEXT = """HloModule t, num_partitions=2
ENTRY main {
  x = f32[3,5] parameter(0)
  one = f32[] constant(1)
  ones = f32[3,2,4] broadcast(one), dimensions={}
  m0 = f32[3,2,4] parameter(1)
  m1 = f32[3,2,4] parameter(2)
  mask0 = f32[3,2,4] add(m0, ones)
  mask1 = f32[3,2,4] add(m1, ones)
  sent0 = f32[2,4,5] dot(mask0, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  there0 = f32[2,4,5] all-to-all(sent0), channel_id=1, replica_groups={{0,1}}, dimensions={0}
  done0 = f32[2,4,5] exponential(there0)
  back0 = f32[2,4,5] all-to-all(done0), channel_id=2, replica_groups={{0,1}}, dimensions={0}
  y = f32[3,5] dot(mask0, back0), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}
  sent1 = f32[2,4,5] dot(mask1, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  there1 = f32[2,4,5] all-to-all(sent1), channel_id=3, replica_groups={{0,1}}, dimensions={0}
  z = f32[3,5] dot(mask1, there1), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}
  ROOT r = (f32[3,5], f32[2,4,5]) tuple(z, done0)
}
"""


def regions(module: HloModule, name: str) -> list[ExchangeRegion]:
    entry = module.entry
    wanted = list(entry.with_opcode(Opcode.ALL_TO_ALL))
    known = {x: n for n, x in enumerate(entry.post_order())}
    (exchange,) = (x for x in wanted if x.name == name)
    return list(exchange_regions(exchange, wanted, known, {}))


def names(region: ExchangeRegion) -> set[str]:
    return {x.name for x in region.members}


def test_a_dimension_ends_where_a_product_sums_over_it() -> None:
    """Both layers read the broadcast, of which every piece is alike: it joins neither to the other."""
    with_sum, without = regions(parse_module(TEXT), "there0")[:2]
    between = {"sent0", "there0", "done0", "back0", "mask0", "ones"}
    assert names(with_sum) == {*between, "y"}
    assert names(without) == between - {"mask0", "ones"}
    assert [x.name for x in with_sum.exchanges] == ["there0", "back0"]
    assert [x.name for x in with_sum.results] == ["done0", "y"]
    assert [x.name for x in without.results] == ["done0", "back0"]


def test_stages_are_what_waits_for_as_many_exchanges() -> None:
    region = regions(parse_module(TEXT), "there0")[0]
    stages = [{x.name for x in stage} for stage in region.stages()]
    assert stages == [{"ones", "mask0", "sent0", "there0"}, {"done0", "back0"}, {"y"}]


def test_pieces_are_whole_parts_of_every_member() -> None:
    region = regions(parse_module(TEXT), "there0")[0]
    assert region.has_pieces(4)
    assert not region.has_pieces(3)


def test_what_stays_in_its_dimension_goes_through_layers() -> None:
    """The model's dimension is free in each product: a region along it holds both layers' all-to-alls."""
    module = parse_module(TEXT)
    (exchange,) = (x for x in module.entry.instructions if x.name == "there0")
    along_model = (r for r in regions(module, "there0") if r.along[exchange].result == 2)
    through = next(along_model)
    assert [x.name for x in through.exchanges] == ["there0", "back0", "there1"]
    assert not through.has_pieces(2)
