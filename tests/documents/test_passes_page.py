"""The page of passes is up to date, and every pass has a fixture of its name."""

from __future__ import annotations

import json

import pytest

from spmd.hlo import HloModule
from spmd.passes import pipeline
from spmd.passes.dead_code_elimination import DeadCodeElimination
from spmd.passes.interface import PASSES
from spmd.passes.pipeline import Application, Pipeline
from spmd.passes.tuple_simplifier import TupleSimplifier
from tests.documents.pass_worth import Worth, measure
from tests.documents.passes_page import (
    DOCUMENT,
    FOR_OVERLAP,
    MEASURED,
    PIPELINES,
    Rounds,
    document,
    fixture_of,
)
from tests.paths import CASES


def test_the_page_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), (
        "python -m tests.documents.passes_page"
    )


@pytest.mark.parametrize("name", sorted(PASSES))
def test_every_pass_has_a_fixture(name: str) -> None:
    lines = fixture_of(PASSES[name]).read_text(encoding="utf-8").splitlines()
    assert any(name in line for line in lines if "RUN:" in line and "--passes=" in line)


def test_what_was_measured_are_passes_of_the_pipelines() -> None:
    steps = {step.name for pipeline in (*PIPELINES, *FOR_OVERLAP) for step in pipeline.passes}
    assert set(json.loads(MEASURED.read_text(encoding="utf-8"))["passes"]) <= steps


def test_worth_is_what_the_step_takes_without_the_pass() -> None:
    """Without fusion the step takes longer; a pass that finds nothing there is worth nothing there."""
    applied = pipeline.apply
    places = {"mlp": CASES / "mlp_dp2"}
    found = measure(places, {"priority-fusion": ["mlp"], "map-inliner": ["mlp"], "x": ["absent"]})
    assert set(found) == {"priority-fusion", "map-inliner"}
    assert found["priority-fusion"].time > 1.1
    assert found["priority-fusion"].time_at == "mlp"
    assert found["map-inliner"] == Worth(tried=1)
    assert pipeline.apply is applied, "no pass is left out any more"


def test_rounds_are_added_up() -> None:
    """Two passes: the first round, one in which the second pass still changes something, and what confirms it."""
    pipeline = Pipeline("p", (TupleSimplifier(), DeadCodeElimination()), repeated=True)
    once = Pipeline("q", pipeline.passes)
    module, rounds = HloModule("m"), Rounds()
    note = rounds.of_one_module()
    note(Application(once, 0, module, changed=True, seconds=100.0))
    for place, changed, seconds in (
        (0, True, 1.0), (1, False, 2.0),
        (0, False, 4.0), (1, True, 8.0),
        (0, False, 16.0), (1, False, 32.0),
    ):  # fmt: skip
        note(Application(pipeline, place, module, changed, seconds))
    assert rounds == Rounds(first=3.0, later=60.0, at_rest=48.0)
    rounds.of_one_module()(Application(pipeline, 0, module, changed=False, seconds=64.0))
    assert rounds == Rounds(first=67.0, later=60.0, at_rest=48.0)
