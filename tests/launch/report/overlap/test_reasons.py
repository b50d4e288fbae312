"""Tests with planted trouble: what the report has to name as the reason, and with how many seconds."""

from __future__ import annotations

import pytest

from launch.report.overlap.model import OverlapReport, Reason
from tests.launch.report.overlap.timelines import Lane, collective, report, site

US = 1e-6


def reference() -> list[Lane]:
    """Return the lanes of a step in which ``a`` runs, then g (20 us by itself), then b and c."""
    return [
        Lane().kernel("a", 10).start("g").wait("g", 30).kernel("b", 30).kernel("c", 5)
        for _ in range(2)
    ]


def parts(found: OverlapReport, name: str = "g") -> dict[Reason, float]:
    return {reason: round(seconds / US, 3) for reason, seconds in collective(found, name).parts}


def step(b: float = 30, landed: float = 30) -> Lane:
    """Return the lane of a step in which b runs beside g."""
    return Lane().kernel("a", 10).start("g").kernel("b", b).wait("g", landed).kernel("c", 5)


def test_hidden_collective_is_worth_what_it_takes() -> None:
    found = report([[step(), step()]], [reference()], [site("g", 30)])
    g = collective(found, "g")
    assert (g.exposed, g.slowed, g.parts, g.why) == (0.0, 0.0, (), "")
    assert g.effective == pytest.approx(20 * US) == found.effective
    assert g.hidden == pytest.approx(20 * US)
    assert found.reference_seconds == pytest.approx(found.seconds + 20 * US)
    assert found.elsewhere == pytest.approx(0.0, abs=1e-12)


def test_neighbour_that_slows_kernels_to_half_is_contention() -> None:
    """Nothing is exposed, and still nothing is gained: b takes 60 us instead of 30, and g hides 20."""
    found = report([[step(b=60), step(b=60)]], [reference()], [site("g", 30)])
    g = collective(found, "g")
    assert g.exposed == 0.0
    assert g.slowed == pytest.approx(30 * US)
    assert g.effective == pytest.approx(-10 * US)
    assert g.why == "contention: kernels that overlap it take 30 us longer than alone"
    assert found.reference_seconds == pytest.approx(found.seconds - 10 * US)


def test_collective_that_slows_kernels_says_how_much_in_its_mean_step() -> None:
    """The reason has the devices' mean, like the figure: device 0 loses 30 us beside g, and device 1 loses 10."""
    found = report([[step(b=60), step(b=40)]], [reference()], [site("g", 30)])
    g = collective(found, "g")
    assert g.slowed == pytest.approx(20 * US)
    assert g.why == "contention: kernels that overlap it take 20 us longer than alone"


def test_kernels_that_take_longer_beside_nothing_are_not_slowed_by_collectives() -> None:
    longer = [
        Lane().kernel("a", 10).start("g").kernel("b", 30).wait("g", 30).kernel("c", 25)
        for _ in range(2)
    ]
    found = report([longer], [reference()], [site("g", 30)])
    assert found.slowed == pytest.approx(0.0, abs=1e-12)
    assert [device.slowed for device in found.devices] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert found.compute == pytest.approx(65 * US)
    assert found.elsewhere == pytest.approx(-20 * US)


def test_slowdown_is_shared_by_time_in_flight() -> None:
    """b runs from 10 to 50, 10 us too long; g is in flight throughout, h for a quarter of the time."""
    lanes = [
        Lane().start("g").start("h").kernel("a", 10).kernel("b", 40).wait("g", 50).wait("h", 20)
        for _ in range(2)
    ]
    blocked = [
        Lane().start("g").wait("g", 5).start("h").wait("h", 10).kernel("a", 10).kernel("b", 30)
        for _ in range(2)
    ]
    found = report([lanes], [blocked], [site("g", 40), site("h", 40)])
    assert collective(found, "g").slowed == pytest.approx(8 * US)
    assert collective(found, "h").slowed == pytest.approx(2 * US)


def test_late_rank_is_named_with_the_kernel_that_made_it_late() -> None:
    late = Lane().kernel("a", 60).start("g").kernel("b", 30).wait("g", 80).kernel("c", 5)
    found = report([[step(landed=80), late]], [reference()], [site("g", 30)])
    g = collective(found, "g")
    # Device 0 stood still from 40 to 80, 40 us, and device 1 not at all: the mean is 20.
    assert parts(found) == {Reason.LATE_PEER: 20.0}
    assert g.late == ((1, pytest.approx(20 * US)),)
    assert (
        g.why == "late peer: device 1 arrives 50 us later than device 0: its a takes 50 us longer"
    )
    assert [device.awaited for device in found.devices] == pytest.approx([0.0, 40 * US])


def test_late_rank_whose_core_was_taken() -> None:
    late = Lane().kernel("a", 60).start("g").kernel("b", 30).wait("g", 80).kernel("c", 5)
    processor = {0: (45.0, 45.0)}
    found = report([[step(landed=80), late]], [reference()], [site("g", 30)], processor=processor)
    assert collective(found, "g").why.endswith("; its thread had no core for 50 us of the step")
    assert found.devices[1].stolen == pytest.approx(50 * US)
    told = "contention: device 1's thread had no core for at least 50 us of its 95 us"
    assert any(note.startswith(told) for note in found.notes)


def test_rank_that_begins_late() -> None:
    late = Lane(50).kernel("a", 10).start("g").kernel("b", 30).wait("g", 80).kernel("c", 5)
    found = report([[step(landed=80), late]], [reference()], [site("g", 30)])
    assert collective(found, "g").why.endswith(": it begins its step 50 us later")


def test_transfer_that_is_slower_beside_kernels_is_contention() -> None:
    found = report([[step(landed=55)] * 2], [reference()], [site("g", 30)])
    assert parts(found) == {Reason.CONTENTION: 15.0}
    assert collective(found, "g").why == "contention: its transfer takes 45 us, alone 20 us"


def test_other_collective_on_its_exchange_is_a_resource_limit() -> None:
    """h lands 20 us after g, since its transfer begins only then."""
    lanes = [
        Lane().start("g").kernel("a", 10).start("h").kernel("b", 10).wait("g", 40).wait("h", 60)
        for _ in range(2)
    ]
    blocked = [
        Lane().start("g").wait("g", 40).kernel("a", 10).start("h").wait("h", 70).kernel("b", 10)
        for _ in range(2)
    ]
    sites = [site("g", 20), site("h", 20)]
    found = report([lanes], [blocked], sites)
    assert parts(found, "h") == {Reason.RESOURCE: 20.0}
    assert collective(found, "h").why == (
        "resource limit: g uses the same exchange for 30 us of its 50 us"
    )
    elsewhere = [site("g", 20), site("h", 20, exchanges=("other",))]
    assert parts(report([lanes], [blocked], elsewhere), "h") == {Reason.CONTENTION: 20.0}


def test_one_that_may_not_be_issued_beside_another_is_a_resource_limit() -> None:
    """h's operand is there at 10, but it is issued at 40, when g is over."""
    lanes = [
        Lane().start("g").kernel("p", 10).kernel("a", 20).wait("g", 40).start("h").wait("h", 60)
        for _ in range(2)
    ]
    blocked = [
        Lane().start("g").wait("g", 40).kernel("p", 10).start("h").wait("h", 70).kernel("a", 20)
        for _ in range(2)
    ]
    sites = [site("g", 30), site("h", 20, producer="p")]
    found = report([lanes], [blocked], sites)
    assert parts(found, "h") == {Reason.RESOURCE: 20.0}
    assert collective(found, "h").why == (
        "resource limit: g uses the same exchange for 30 us before this one is issued"
    )
    # Where two may be in flight, g was in nobody's way: with work enough, it is the schedule's choice.
    beside = [site("g", 30), site("h", 20, producer="p", in_flight_limit=2)]
    for lane in (*lanes, *blocked):
        lane.kernel("rest", 40)
    assert parts(report([lanes], [blocked], sites), "h") == {Reason.RESOURCE: 20.0}
    assert parts(report([lanes], [blocked], beside), "h") == {Reason.ORDER: 20.0}


@pytest.mark.parametrize("blocking", [False, True])
def test_exchange_with_more_to_do_than_there_is_work_is_a_resource_limit(blocking: bool) -> None:
    """g and h take 40 us, all work 25: whatever the order, 15 us are exposed. a hides 10 us of g, b all it can of h."""
    lanes = [
        Lane().kernel("p", 5).start("g").kernel("a", 10).wait("g", 25).start("h").kernel("b", 10)
        for _ in range(2)
    ]
    blocked = [
        Lane().kernel("p", 5).start("g").wait("g", 25).kernel("a", 10).start("h").wait("h", 55)
        for _ in range(2)
    ]
    for lane in lanes:
        lane.wait("h", 45)
    for lane in blocked:
        lane.kernel("b", 10)
    sites = [site("g", 20, producer="p", blocking=blocking), site("h", 20, producer="a")]
    found = report([lanes], [blocked], sites)
    assert parts(found, "g") == {Reason.RESOURCE: 10.0}
    assert collective(found, "g").why == (
        "resource limit: its exchange is busy for 40 us of a step with 25 us of work"
    )


def test_words_are_of_the_limit_that_costs_most() -> None:
    """g keeps h from being issued for 3 us, and for 27 us there is no work; or the scheduler reached a limit."""
    lanes = [
        Lane().start("g").kernel("p", 5).wait("g", 8).start("h").kernel("b", 10).wait("h", 48)
        for _ in range(2)
    ]
    blocked = [
        Lane().start("g").wait("g", 8).kernel("p", 5).start("h").wait("h", 53).kernel("b", 10)
        for _ in range(2)
    ]
    found = report([lanes], [blocked], [site("g", 15), site("h", 40, producer="p")])
    assert parts(found, "h") == {Reason.RESOURCE: 30.0}
    assert collective(found, "h").why == (
        "resource limit: its exchange is busy for 48 us of a step with 15 us of work"
    )
    by_flights = report(
        [lanes], [blocked], [site("g", 15), site("h", 40, producer="p", in_flight_limited=28)]
    )
    assert collective(by_flights, "h").why == (
        "resource limit: the scheduler reached its limit of collectives in flight, although 40 us of work can overlap "
        "its transfer of 40 us"
    )


@pytest.mark.parametrize("blocking", [False, True])
def test_where_all_collectives_block_the_difference_is_chance(blocking: bool) -> None:
    found = report([reference()], [reference()], [site("g", 30, blocking=blocking)])
    said = [note for note in found.notes if note.startswith("no collective has a start and a done")]
    assert bool(said) == blocking


def test_one_that_blocks_is_not_exposed_because_it_came_late() -> None:
    """A collective that blocks would be exposed before g, too."""
    lanes = [
        Lane().kernel("p", 5).start("g").kernel("a", 90).wait("g", 40).start("h").wait("h", 115)
        for _ in range(2)
    ]
    blocked = [
        Lane().kernel("p", 5).start("g").wait("g", 40).kernel("a", 90).start("h").wait("h", 150)
        for _ in range(2)
    ]
    sites = [site("g", 90, producer="p"), site("h", 90, producer="p", blocking=True)]
    assert parts(report([lanes], [blocked], sites), "h") == {Reason.BLOCKING: 20.0}


def test_scheduler_that_lost_to_limits() -> None:
    lanes = [
        Lane().kernel("a", 10).start("g").wait("g", 30).kernel("b", 30).kernel("c", 5)
        for _ in range(2)
    ]
    by_memory = report([lanes], [reference()], [site("g", 30, limited=20.0)])
    assert parts(by_memory) == {Reason.MEMORY: 20.0}
    assert collective(by_memory, "g").why == (
        "memory limit: the scheduler had too little memory to overlap it, although 30 us of work can overlap its "
        "transfer of 20 us"
    )
    by_flights = report([lanes], [reference()], [site("g", 30, in_flight_limited=15.0)])
    assert parts(by_flights) == {Reason.RESOURCE: 15.0, Reason.ORDER: 5.0}


@pytest.mark.parametrize(
    ("independent", "blocking", "expected"),
    [
        (0, False, {Reason.DEPENDENCY: 20.0}),
        (8, False, {Reason.DEPENDENCY: 12.0, Reason.ORDER: 8.0}),
        (30, False, {Reason.ORDER: 20.0}),
        (30, True, {Reason.BLOCKING: 20.0}),
    ],
)
def test_exposed_by_the_program_or_by_its_schedule(
    independent: float, blocking: bool, expected: dict[Reason, float]
) -> None:
    lanes = [
        Lane().kernel("a", 10).start("g").wait("g", 30).kernel("b", 30).kernel("c", 5)
        for _ in range(2)
    ]
    told = site("g", independent, blocking=blocking, producer="a", user="c")
    found = report([lanes], [reference()], [told])
    assert parts(found) == expected
    if independent == 0:
        assert collective(found, "g").why == (
            "dependency: 0 us of work can overlap its transfer of 20 us; a produces its operand, c uses its result"
        )


def test_starting_a_collective_is_exposed_too() -> None:
    lanes = [
        Lane().kernel("a", 10).start("g", 4).kernel("b", 30).wait("g", 30).kernel("c", 5)
        for _ in range(2)
    ]
    found = report([lanes], [reference()], [site("g", 30)])
    assert parts(found) == {Reason.ISSUE: 4.0}
