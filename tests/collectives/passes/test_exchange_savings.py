"""Tests of the savings of regions in pieces: remembered prices equal those that are computed anew, and bounds hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collectives.passes.exchange_pieces import ExchangePieces
from collectives.passes.exchange_region import EXCHANGES, exchange_regions
from collectives.passes.exchange_savings import ExchangeSavings
from collectives.passes.windowed_cost import WindowedCostModel
from spmd.builder import Builder, ModuleScope
from spmd.hlo import HloModule, Stage
from spmd.machine.named import machine_named
from spmd.text.parser import parse_module

LAYERS = 3
GROUPS = "use_global_device_ids=true, replica_groups={{0,1}}"
MACHINES = ("tcp-cluster{links=0.04,node=1}", "tcp-cluster{node=1}", "dgx-h100")


def layered() -> HloModule:
    """Layers alike but for the width of the last one's products."""
    lines = ["x0 = f32[512,1024] parameter(0)"]
    for n in range(LAYERS):
        wide = 2048 if n == LAYERS - 1 else 1024
        lines += [
            f"up{n} = f32[1024,{wide}] parameter({2 * n + 1})",
            f"down{n} = f32[{wide},1024] parameter({2 * n + 2})",
            f"a{n} = f32[512,{wide}] dot(x{n}, up{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"b{n} = f32[512,1024] dot(a{n}, down{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"c{n} = f32[512,1024] all-reduce(b{n}), channel_id={n + 1}, {GROUPS}, to_apply=add",
            f"x{n + 1} = f32[512,1024] add(c{n}, x{n})",
        ]
    body = "\n  ".join(lines)
    found = parse_module(
        "HloModule t, num_partitions=2\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
        f"  ROOT s = f32[] add(a, b)\n}}\nENTRY main {{\n  {body}\n  ROOT r = f32[512,1024] negate(x{LAYERS})\n}}\n"
    )
    found.stage = Stage.PARTITIONED
    return found


def ways(found: HloModule) -> Iterator[ExchangePieces]:
    builder = Builder(found.entry, ModuleScope(found))
    exchanges = list(found.entry.with_opcode(*EXCHANGES))
    known = {x: n for n, x in enumerate(found.entry.post_order())}
    for exchange in exchanges:
        for region in exchange_regions(exchange, exchanges, known, {}):
            for pieces in (2, 4):
                yield ExchangePieces(region, pieces, builder)


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_known_of_alike_regions(machine: str) -> None:
    found = layered()
    text = str(found)
    prices = WindowedCostModel(found, machine_named(machine))
    gains = ExchangeSavings(prices, {})
    regions = 0
    for way in ways(found):
        anew = ExchangeSavings(prices, {}).of(way)
        assert anew <= gains.most(way) * (1 + 1e-9)
        assert gains.of(way) == pytest.approx(anew, rel=1e-9, abs=1e-12)
        assert anew <= gains.most(way) * (1 + 1e-9)
        regions += 1
    assert str(found) == text
    assert len({(way.pieces, way.region.structural_key) for way in ways(found)}) < regions


def test_what_is_saved_otherwise_is_taken_off() -> None:
    found = layered()
    prices = WindowedCostModel(found, machine_named(MACHINES[0]))
    way = next(ways(found))
    rivals = {way.region.exchanges[0]: 0.25}
    alone, beside = ExchangeSavings(prices, {}), ExchangeSavings(prices, rivals)
    assert beside.of(way) == pytest.approx(alone.of(way) - 0.25)
    assert beside.most(way) == pytest.approx(alone.most(way) - 0.25)
