"""ProfiledEstimator: measured durations by name, means of a trace, and the fallback for the rest."""

from __future__ import annotations

import json

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


def event(name: str, duration: float, kind: str = "Kernel") -> dict[str, object]:
    return {"name": name, "cat": kind, "ph": "X", "ts": 0.0, "dur": duration, "pid": 0, "tid": 0}


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


def test_a_trace_gives_means_of_kernels_and_of_collectives_in_flight() -> None:
    events = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "device 0"}},
        event("n", 10.0),
        event("n", 30.0),
        event("a", 1.0, "CollectiveStart"),
        event("a", 200.0, "Collective"),
    ]
    found = read_durations(json.dumps({"traceEvents": events}).encode(), "f")
    assert found.compute == {"n": pytest.approx(20e-6), "a": pytest.approx(1e-6)}
    assert found.collectives == {"a": pytest.approx(200e-6)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"n": -1}', "f: n must be from 0"),
        ('{"n": []}', "f: n must be a number"),
        ('{"traceEvents": 3}', "traceEvents must be a list"),
        ('{"traceEvents": [3]}', r"traceEvents\[0\]: expected an object"),
        ('{"traceEvents": [{"ph": "X", "name": "n"}]}', "field 'dur' is missing"),
        ('{"traceEvents": [{"ph": "X", "dur": "1"}]}', "dur must be a number"),
        ('{"traceEvents": [{"ph": "X", "dur": 1, "name": 3}]}', "name must be a text"),
        ("[]", "expected an object"),
    ],
)
def test_what_is_no_profile_is_refused(text: str, message: str) -> None:
    with pytest.raises(CostError, match=message):
        read_durations(text.encode(), "f")
