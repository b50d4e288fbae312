"""ProfiledEstimator: measured durations by name, and the fallback for the rest."""

from __future__ import annotations

import pytest

from collectives.cost.estimator import CostError
from collectives.cost.profiled import Durations, ProfiledEstimator, read_durations
from collectives.cost.roofline import RooflineEstimator
from spmd.machine.named import machine_named
from spmd.text.parser import parse_module

MODULE = parse_module("""
HloModule m, num_partitions=8
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}
wrapped {
  q = f32[4096] parameter(0)
  ROOT r = f32[4096] all-to-all(q), channel_id=2, replica_groups=[1,8]<=[8], dimensions={0}
}
ENTRY e {
  p = f32[4096] parameter(0)
  n = f32[4096] negate(p)
  a = f32[4096] all-reduce(n), channel_id=1, replica_groups=[1,8]<=[8], to_apply=add, use_global_device_ids=true
  begin = ((f32[4096]), f32[4096], u32[]) async-start(a), calls=wrapped
  d = f32[4096] async-done(begin)
  ROOT t = f32[4096] tanh(d)
}
""")
FALLBACK = RooflineEstimator.of(MODULE, machine_named("dgx-h100"))
BY_NAME = {x.name: x for x in MODULE.entry.instructions}


def test_measured_durations_and_the_fallback() -> None:
    found = read_durations(b'{"n": 0.5, "a": 0.25, "r": 2}', "f")
    estimator = ProfiledEstimator(found, FALLBACK)
    assert estimator.compute(BY_NAME["n"]) == 0.5
    assert estimator.compute(BY_NAME["t"]) == FALLBACK.compute(BY_NAME["t"]) > 0
    measured, guess = (one.collective(BY_NAME["a"]) for one in (estimator, FALLBACK))
    assert (measured.seconds, measured.algorithm) == (0.25, guess.algorithm)
    scale = 0.25 / guess.seconds
    assert [link.sent for link in measured.links] == [link.sent for link in guess.links]
    assert measured.links[0].seconds == pytest.approx(scale * guess.links[0].seconds)
    assert estimator.collective(BY_NAME["begin"]).seconds == 2
    nothing = ProfiledEstimator(Durations(), FALLBACK)
    assert nothing.collective(BY_NAME["a"]) == guess


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"n": -1}', "f: n must be from 0"),
        ('{"n": []}', "f: n must be a number"),
        ("[", "f: no profile in JSON"),
        ("[]", "expected an object"),
    ],
)
def test_what_is_no_profile_is_refused(text: str, message: str) -> None:
    with pytest.raises(CostError, match=message):
        read_durations(text.encode(), "f")
