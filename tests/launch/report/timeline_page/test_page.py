"""The timeline's page stands alone, holds any name as data, keeps all times, and stays small."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

import spmd
from launch.report.overlap.model import OverlapReport
from launch.report.timeline_page import data as page_data_module
from launch.report.timeline_page.data import page_data
from launch.report.timeline_page.page import timeline_page
from tests.launch.report.timeline_page.reports import HOSTILE, report, with_steps

MODULE = """HloModule step
ENTRY e {
  x = f32[8,8] parameter(0)
  ROOT dot.1 = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def read(page: str) -> dict[str, Any]:
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    found: dict[str, Any] = json.loads(data)
    return found


class Tags(HTMLParser):
    """The tags of a page as a browser reads it, and the ids among them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.ids += [value for name, value in attrs if name == "id" and value is not None]


def test_the_page_stands_alone() -> None:
    page = timeline_page(report())
    assert "default-src 'none'" in page
    addresses = set(re.findall(r"https?://[\w./]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a namespace, which nobody loads
    assert not re.search(
        r"<(link|img|iframe|object)\b|@import|url\(|\bfetch\(|XMLHttpRequest", page
    )


def test_hostile_names_are_data() -> None:
    page = timeline_page(report())
    found = Tags(page)
    assert found.tags["img"] == 0
    assert found.tags["script"] == 2
    assert page.count("</script>") == 2
    assert read(page)["strings"].count(HOSTILE) == 1
    assert "innerHTML" not in page


def test_all_that_the_script_asks_for_is_there() -> None:
    """Each element is named once, and none is asked for that there is not."""
    page = timeline_page(report())
    ids = Tags(page).ids
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'\bnode\("(\w+)"\)', page)) <= set(ids)


def slices(data: dict[str, Any]) -> list[tuple[int, int, str, int, int, int]]:
    """(device, step, name, depth, start, end) of all slices, as document.js finds them."""
    found = []
    for run in data["runs"]:
        sequence, at = data["sequences"][run["sequence"]], run["start"]
        for instruction, depth, later, took in zip(
            sequence["instruction"], sequence["depth"], run["at"], run["took"], strict=True
        ):
            at += later
            name = data["strings"][data["instructions"]["name"][instruction]]
            found.append((run["device"], run["step"], name, depth, at, at + took))
    return found


def test_times_come_back() -> None:
    """Times are in nanoseconds from the first event; sequences that only hold others' parts are left out."""
    made = report()
    expected = [
        (device.device, number, one.name, round(1e9 * one.start), round(1e9 * one.end))
        for number, step in enumerate(made.run.steps)
        for device in step.devices
        for one in device.slices
        if not (one.kind == "ThunkSequence" and one.name in ("step", "cp"))
    ]
    data = page_data(made, None)
    assert [(r, s, n, a, b) for r, s, n, _, a, b in slices(data)] == expected
    assert len(data["sequences"]) == 1  # all devices and steps run the same
    depths = {name: depth for _, _, name, depth, _, _ in slices(data)}
    assert depths == {"ag": 0, "dot.1": 0, "while.2": 0, "body": 1, "loop_add_fusion": 2, "cp": 0}


def test_kinds_are_told_by_what_runs() -> None:
    data = page_data(report(), None)
    kinds = [kind["name"] for kind in data["kinds"]]
    named = {
        (data["strings"][name], kinds[kind])
        for name, kind in zip(
            data["instructions"]["name"], data["instructions"]["kind"], strict=True
        )
    }
    assert named == {
        ("ag", "all-gather"),
        ("ag", "waiting"),
        ("cp", "collective-permute"),
        ("cp", "waiting"),
        ("dot.1", "products"),
        ("while.2", "loops and branches"),
        ("body", "loops and branches"),
        ("loop_add_fusion", "elementwise"),
    }


def test_instructions_are_shown_as_the_module_has_them() -> None:
    module = spmd.parse(MODULE)
    data = page_data(report(), module)
    texts = {data["strings"][n] for n in data["instructions"]["text"]}
    assert texts == {"", next(i for i in MODULE.splitlines() if "ROOT" in i).split("ROOT ")[1]}


def test_figures_are_those_of_the_report() -> None:
    data = page_data(report(), None)
    numbers = {word: ns for word, ns, _, _ in data["numbers"]}
    assert numbers["step, measured"] == 40_000
    assert numbers["step, predicted"] == 35_000
    assert numbers["reference step"] == 46_000
    assert numbers["effective overlap"] == 5_000
    assert numbers["compute"] + numbers["slowed"] + numbers["exposed"] == 39_000  # and 1 us else
    (row,) = data["collectives"]
    assert (row["name"], row["exposed"], row["why"]) == ("ag", 9_000, "device 1 came 6 us later")
    assert data["shown"] == 0
    predicted = dict(
        zip(data["instructions"]["name"], data["instructions"]["predicted"], strict=True)
    )
    assert predicted[data["strings"].index("dot.1")] == 7_000
    assert data["path"][1] == {
        "device": 0, "kind": "transfer", "name": "ag", "start": 10_000, "end": 22_000
    }  # fmt: skip


def test_steps_are_left_out_of_a_page_that_would_be_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = with_steps(6)
    each = sum(len(device.slices) for device in made.run.steps[0].devices)
    monkeypatch.setattr(page_data_module, "MOST_SLICES", 3 * each)
    data = page_data(made, None)
    assert [step["number"] for step in data["steps"]] == [0, 1, 5]
    assert data["shown"] == 2
    assert data["notes"][-1].startswith("3 steps are left out")
    assert page_data(with_steps(3), None)["notes"] == list(made.notes)


def test_a_step_costs_its_times_and_little_more() -> None:
    """Names, sequences and texts stand once, however many steps there are."""

    def size(made: OverlapReport) -> int:
        return len(timeline_page(made))

    slices_of_a_step = sum(len(device.slices) for device in report().run.steps[0].devices)
    assert (size(with_steps(200)) - size(with_steps(100))) / 100 < 20 * slices_of_a_step + 400


def test_a_device_that_recorded_nothing_has_its_lane() -> None:
    made = report()
    step = made.run.steps[0]
    silent = replace(step.devices[1], slices=(), async_intervals=())
    steps = (replace(step, devices=(step.devices[0], silent)), made.run.steps[1])
    data = page_data(replace(made, run=replace(made.run, steps=steps)), None)
    assert data["devices"] == ["device 0", "device 1"]
    assert [run["took"] for run in data["runs"] if run["step"] == 0 and run["device"] == 1] == [[]]
