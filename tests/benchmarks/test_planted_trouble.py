"""benchmarks/overlap/planted_trouble.py: how much is planted on processors of different speed, and what passes for named."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from benchmarks.overlap.planted_modules import independent, large_between
from benchmarks.overlap.planted_sizes import NotPlantedError, limit_between, work_for
from benchmarks.overlap.planted_trouble import KINDS, Planted, causes_of, faults_of, named
from launch.report.overlap.model import Reason
from spmd.machine.description import MachineDescription
from spmd.machine.exchange import Exchange
from spmd.machine.named import machine_named

ONE = partial(independent, reductions=1, rows=2048)
BUSY = 0.2


def linked(slower: float = 1.0) -> MachineDescription:
    """Cores that multiply at a described core's rate, or so many times slower, joined by a link of 120 MB/s."""
    here = machine_named()
    rates = tuple((kind, replace(rate, matrix=rate.matrix / slower)) for kind, rate in here.rates)
    inside = replace(here.exchanges[0], devices=1)
    link = Exchange("link", 1 << 14, 1.2e8, 4e-4, ports=1, busy=BUSY)
    name = f"planted-{slower:g}"
    return replace(here, name=name, rates=rates, products=(), exchanges=(inside, link))


def kind_of(name: str) -> Planted:
    return next(kind for kind in KINDS if kind.name == name)


def test_fast_and_slow_processors_are_given_work_for_as_long() -> None:
    fast, slow = (work_for(3.0, ONE, linked(slower)) for slower in (1.0, 10.0))
    assert fast == pytest.approx(10 * slow, rel=0.1)
    assert work_for(6.0, ONE, linked()) == pytest.approx(2 * fast, abs=1)
    assert work_for(1e-6, ONE, linked()) == 1


def test_a_limit_lies_between_what_is_needed() -> None:
    machine, module = linked(), large_between(1, 1024)
    limit = limit_between(module, machine)
    # The reduction's result beside the large product, at least, or not.
    assert limit_between(large_between(1, 2048), machine) > limit > 2 * 4 * 512 * 8192
    with pytest.raises(NotPlantedError, match="bytes with its reduction hidden"):
        limit_between(module, machine_named())


def found(
    *collectives: tuple[str, dict[str, float]],
    notes: tuple[str, ...] = (),
    effective: float = 0.03,
    difference: float = 0.03,
) -> dict[str, Any]:
    """A report of a step of 100 ms whose collectives take 40 ms each alone. Of each, why and its causes."""
    return {
        "effective_overlap_s": effective,
        "measured": {"step_s": 0.1, "reference_step_s": 0.1 + difference, "exposed_s": 0.0},
        "collectives": [
            {"op": f"g{number}", "alone_s": 0.04, "why": why, "causes": causes}
            for number, (why, causes) in enumerate(collectives)
        ],
        "notes": list(notes),
    }


LATE = ("late peer: device 1 comes later", {"late peer": 0.02, "order": 0.001})
ORDER = ("order: it stands elsewhere", {"order": 0.03})


def test_the_reason_that_most_is_put_down_to_is_named() -> None:
    report = found(LATE)
    assert named(Reason.LATE_PEER, report) == ["g0: late peer: device 1 comes later"]
    assert not faults_of(kind_of("late"), report, BUSY)
    assert causes_of(found(LATE, ORDER)) == {"late peer": 0.02, "order": 0.031}
    assert faults_of(kind_of("late"), found(LATE, ORDER), BUSY) == ["late peer is not named"]
    assert faults_of(kind_of("resource"), report, BUSY) == ["resource limit is not named"]


def test_a_note_names_its_reason() -> None:
    note = "contention: device 1's thread had no core"
    assert not faults_of(kind_of("neighbour"), found(LATE, notes=(note,)), BUSY)
    assert faults_of(kind_of("neighbour"), found(LATE), BUSY) == ["contention is not named"]
    assert named(Reason.CONTENTION, found(LATE, notes=(note, "clocks agree"))) == [note]


@pytest.mark.parametrize(
    ("report", "faults"),
    [
        (found(("", {"order": 0.009})), []),
        (found(("", {})), []),
        (found(LATE), ["late peer"]),
        (found(("", {}), notes=("contention: no core",)), ["contention: no core"]),
        (found(("", {}), effective=0.025, difference=0.025), ["little is hidden"]),
        (
            found(("", {}), effective=0.036),
            ["the effective overlap is not the difference of the steps"],
        ),
    ],
)
def test_where_nothing_is_planted_nothing_may_be_named(
    report: dict[str, Any], faults: list[str]
) -> None:
    assert faults_of(kind_of("none"), report, BUSY) == faults


def test_nothing_exposed_names_no_reason() -> None:
    assert faults_of(kind_of("resource"), found(("", {})), BUSY) == ["resource limit is not named"]
