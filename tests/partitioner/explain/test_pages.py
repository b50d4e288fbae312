"""The text and the page."""

from __future__ import annotations

import json
import re

import explain_modules
import pytest

import spmd
from partitioner.explain.explain import explain_module
from partitioner.explain.html import explanation_page
from partitioner.explain.report import Explanation
from partitioner.explain.text import format_explanation, format_instruction
from spmd.errors import SpmdError


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return explain_module(spmd.parse(explain_modules.TURNED), 4)


def test_the_text_names_collective_states_remedy_and_conflict(explanation: Explanation) -> None:
    text = format_explanation(explanation)
    for part in (
        "all-to-all",
        "1 all-to-all",
        "(the least possible)",
        "y: f32[64,32@axis0] -> f32[64@axis0,32]",
        "remedy: annotate x with",
        "kept: parameter x",
        "(assumed, not measured)",
    ):
        assert part in text


def test_one_instruction_alone(explanation: Explanation) -> None:
    text = format_instruction(explanation, "result")
    assert text.startswith("result  custom-call")
    assert "all-to-all" in text
    assert "in HLO {devices=[1,4]<=[4]} -> {devices=[4,1]<=[4]}" in text
    assert "x  f32[" not in text


def test_an_unknown_instruction_is_an_error(explanation: Explanation) -> None:
    with pytest.raises(SpmdError, match="no instruction 'nobody'"):
        format_instruction(explanation, "nobody")


def embedded(page: str) -> object:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found.group(1))


def test_the_page_holds_its_data_and_needs_nothing_else(explanation: Explanation) -> None:
    page = explanation_page(explanation)
    assert embedded(page) == json.loads(json.dumps(explanation.as_json()))
    assert not re.search(r"@[A-Z]+@", re.sub(r'id="data">.*?</script>', "", page, flags=re.S))
    assert not re.search(r"https?://|<link|src=", page)


def test_names_cannot_end_the_script() -> None:
    hostile = explain_modules.TURNED.replace(
        "parameter(0)",
        'parameter(0), metadata={op_name="</script><script>alert(1)</script>@DATA@"}',
    )
    explanation = explain_module(spmd.parse(hostile), 4, max_tried=0)
    page = explanation_page(explanation)
    assert "<script>alert" not in page
    assert "</script><script>alert(1)</script>@DATA@" in json.dumps(embedded(page))
