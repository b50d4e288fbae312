"""The page of passes is up to date, and every pass has a fixture of its name."""

from __future__ import annotations

import json

import pytest

from spmd.passes.interface import PASSES
from tests.passes_page import DOCUMENT, MEASURED, PIPELINES, document, fixture_of


def test_the_page_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "python -m tests.passes_page"


@pytest.mark.parametrize("name", sorted(PASSES))
def test_every_pass_has_a_fixture(name: str) -> None:
    lines = fixture_of(PASSES[name]).read_text(encoding="utf-8").splitlines()
    assert any(name in line for line in lines if "RUN:" in line and "--passes=" in line)


def test_what_was_measured_are_passes_of_the_pipelines() -> None:
    steps = {step.name for pipeline in PIPELINES for step in pipeline.passes}
    assert set(json.loads(MEASURED.read_text(encoding="utf-8"))["passes"]) <= steps
