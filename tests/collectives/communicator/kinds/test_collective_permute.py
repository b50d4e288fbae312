"""Routes of a permute: every rank lies on one, and all of its ranks see the same."""

from __future__ import annotations

import pytest

from collectives.communicator.kinds.collective_permute import (
    CollectivePermute,
    Route,
    has_routes,
    route_through,
)

PAIRS = {
    "a ring": (((0, 1), (1, 2), (2, 0)), {Route((0, 1, 2), True)}),
    "a shift": (((2, 3), (0, 1), (1, 2)), {Route((0, 1, 2, 3), False)}),
    "back": (((1, 0), (2, 1)), {Route((2, 1, 0), False)}),
    "to itself": (((0, 0), (1, 1)), {Route((0,), True), Route((1,), True)}),
    "two swap, others go on": (
        ((5, 2), (2, 5), (0, 1), (4, 3), (3, 4)),
        {Route((2, 5), True), Route((0, 1), False), Route((3, 4), True)},
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_routes(name: str) -> None:
    pairs, want = PAIRS[name]
    collective = CollectivePermute.among(pairs, pairs[0][0])
    assert has_routes(collective)
    routes = {rank: route_through(collective, rank) for rank in collective.group}
    assert set(routes.values()) == want
    assert all(rank in route.ranks for rank, route in routes.items())


def test_who_sends_to_two_is_on_no_route() -> None:
    assert not has_routes(CollectivePermute.among(((0, 0), (0, 1)), 0))
