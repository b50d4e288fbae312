"""Max-min fair rates, from the definition: who is held back is on a full port where nobody is faster."""

from __future__ import annotations

import random

import pytest

from collectives.simulate.ports import Port, Transfer, begin, fair_rates, finish


def transfers_on(uses: list[dict[int, float]], ports: list[Port]) -> list[Transfer]:
    """Transfer n uses port p for ``uses[n][p]`` of its time."""
    made = [
        Transfer(n, {ports[p]: use for p, use in own.items()}, 0.0, 1.0)
        for n, own in enumerate(uses)
    ]
    for transfer in made:
        begin(transfer, 0.0)
    return made


def test_one_port_holds_two_back_and_a_third_takes_what_is_left() -> None:
    ports = [Port("a"), Port("b")]
    both, one, other = transfers_on([{0: 1.0, 1: 1.0}, {0: 1.0}, {1: 0.5}], ports)
    assert [transfer.rate for transfer in (both, one, other)] == pytest.approx([0.5, 0.5, 1.0])
    assert [port.meter.load for port in ports] == pytest.approx([1.0, 1.0])
    assert both.limited_by == (("a", 1),)


def test_what_a_transfer_leaves_goes_to_those_beside_it_alone() -> None:
    ports = [Port("a"), Port("b")]
    short, long, far = transfers_on([{0: 1.0}, {0: 1.0}, {1: 1.0}], ports)
    assert [transfer.rate for transfer in finish(short, 1.0)] == [1.0]
    assert (long.rate, long.left, far.since) == (1.0, 0.5, 0.0)


@pytest.mark.parametrize("seed", range(50))
def test_rates_are_max_min_fair(seed: int) -> None:
    dice = random.Random(seed)
    ports = [Port(str(p)) for p in range(dice.randrange(1, 5))]
    uses = [
        {
            p: dice.choice((0.25, 0.6, 1.0))
            for p in dice.sample(range(len(ports)), dice.randrange(1, len(ports) + 1))
        }
        for _ in range(dice.randrange(1, 7))
    ]
    transfers = transfers_on(uses, ports)
    rates = {transfer: rate for transfer, (rate, _) in fair_rates(transfers).items()}
    loads = {
        p: sum(rates[t] * use for t in p.transfers for q, use in t.uses.items() if q is p)
        for p in ports
    }
    assert all(load <= 1 + 1e-9 for load in loads.values())
    for transfer, rate in rates.items():
        full = [p for p in transfer.uses if loads[p] > 1 - 1e-9]
        held = any(rate >= max(rates[t] for t in p.transfers) - 1e-9 for p in full)
        assert rate == pytest.approx(1.0) or held
