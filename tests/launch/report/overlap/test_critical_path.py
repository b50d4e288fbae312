"""The critical path across devices, on a step of which it is known."""

from __future__ import annotations

import pytest

from launch.report.overlap.path_shares import path_shares
from tests.launch.report.overlap.timelines import Lane, report, site


def test_path_goes_through_the_rank_that_came_last() -> None:
    """Device 1 holds g up, then device 0 holds h up."""
    zero = Lane().kernel("a", 10).start("g").wait("g", 50).kernel("b", 40).start("h").wait("h", 95)
    one = Lane().kernel("a", 40).start("g").wait("g", 50).kernel("b", 10).start("h").wait("h", 95)
    zero.kernel("k", 5)
    one.kernel("k", 3)
    sites = [site("g", 0), site("h", 0)]
    found = report([[zero, one]], [], sites)
    assert [(x.device, x.kind, x.name, round(x.seconds * 1e6, 3)) for x in found.path] == [
        (1, "compute", "a", 40.0),
        (0, "transfer", "g", 10.0),
        (0, "compute", "b", 40.0),
        (0, "transfer", "h", 5.0),
        (0, "compute", "k", 5.0),
    ]
    shares = path_shares(found)
    assert [(one.kind, one.opcode, one.names) for one in shares] == [
        ("compute", "", ("a", "b")),
        ("transfer", "all-reduce", ("g", "h")),
        ("compute", "parameter", ("k",)),
    ]
    assert shares[2].source == "f.py:7"
    assert sum(one.share for one in shares) == pytest.approx(1.0)


def test_a_wait_is_known_by_its_begin() -> None:
    """A trace tells a slice's length, so that its end may be rounded."""
    begin, end = 1.001, 5.011
    assert begin + (end - begin) != end
    lanes = [Lane().kernel("a", begin).start("g").wait("g", end) for _ in range(2)]
    kinds = [x.kind for x in report([lanes], [], [site("g", 0)]).path]
    assert kinds == ["compute", "transfer"]


def test_what_a_device_did_while_it_waited_for_nobody_is_on_it() -> None:
    """g has landed before it is waited for: the path stays on its device."""
    lanes = [Lane().kernel("a", 10).start("g").kernel("b", 40).wait("g", 20) for _ in range(2)]
    found = report([lanes], [], [site("g", 40)])
    assert {x.kind for x in found.path} == {"compute"}
    assert sum(x.seconds for x in found.path) == pytest.approx(50e-6)
