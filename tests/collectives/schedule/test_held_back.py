"""Tests of the time that is left exposed by the limits of what may be in flight, and by nothing else."""

from __future__ import annotations

import pytest

from collectives.schedule.latency_hiding import LatencyOptions
from collectives.schedule.overlap_limits import OverlapLimits
from tests.collectives.schedule.test_latency_hiding import COLUMNS, ROWS, hide, scheduled

#: Two that could run side by side, beside work of as long.
TWO = f"""
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  one = f32[8] all-reduce(x), channel_id=1, {ROWS}, to_apply=sum
  other = f32[8] all-reduce(y), channel_id=2, {COLUMNS}, to_apply=sum
  a = f32[8] negate(x)
  s = f32[8] add(one, other)
  ROOT t = f32[8] add(s, a)
"""
SECONDS = {"one": 2.0, "other": 2.0, "a": 2.0}
FREE = OverlapLimits()
ONE_IN_ALL = OverlapLimits(in_flight=1)


@pytest.mark.parametrize(
    ("limits", "second_exchange", "exposed", "held"),
    [
        (FREE, "other link", 0.0, 0.0),
        (ONE_IN_ALL, "other link", 2.0, 2.0),
        (ONE_IN_ALL, "link", 2.0, 0.0),  # the link carries one at a time: no limit is to blame
    ],
)
def test_a_limit_is_to_blame_for_what_would_be_hidden_without(
    limits: OverlapLimits, second_exchange: str, exposed: float, held: float
) -> None:
    module = scheduled(TWO)
    exchanges = {"other": second_exchange}
    report = hide(module, SECONDS, LatencyOptions(limits), exchanges=exchanges)
    assert report.exposed == pytest.approx(exposed)
    assert sum(one.in_flight_limited for one in report.collectives) == pytest.approx(held)
    assert report.limits == limits


def test_looking_for_what_is_to_blame_leaves_the_order() -> None:
    """Another order is tried for that, in which both are in flight together."""
    module = scheduled(TWO)
    hide(module, SECONDS, LatencyOptions(ONE_IN_ALL), exchanges={"other": "other link"})
    names = [x.name for x in module.entry.instructions]
    places = [
        names.index(f"{name}-{half}") for name in ("one", "other") for half in ("start", "done")
    ]
    assert places == sorted(places) or places[2:] + places[:2] == sorted(places)


def test_what_needs_another_one_is_not_held_back() -> None:
    module = scheduled(TWO.replace("all-reduce(y)", "all-reduce(one)"))
    report = hide(module, SECONDS, LatencyOptions(ONE_IN_ALL), exchanges={"other": "other link"})
    assert report.exposed == pytest.approx(2.0)
    assert all(one.in_flight_limited == 0.0 for one in report.collectives)
