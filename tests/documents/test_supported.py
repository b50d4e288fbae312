"""The page of what is supported is up to date, and what it says is refused is refused, at that stage and in those words."""

from __future__ import annotations

import re

import numpy as np
import pytest

from spmd.errors import SpmdError, UnsupportedError
from spmd.evaluator import evaluate_partitions
from spmd.shape import ArrayShape
from spmd.text.parser import parse_module
from spmd.verifier import verify
from tests.documents.supported import DOCUMENT, REFUSALS, document


def test_the_page_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document()


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda r: r.what)
def test_refusal(refusal) -> None:
    text = f"HloModule m\nENTRY e {{\n{refusal.body}\n}}"
    words = re.escape(refusal.words)
    module = parse_module(text)
    if refusal.stage == "verify":
        with pytest.raises(SpmdError, match=words):
            verify(module)
        return
    verify(module)
    shapes = [p.shape for p in module.entry.parameters]
    arrays = [np.ones(s.dims, s.element_type.numpy) for s in shapes if isinstance(s, ArrayShape)]
    with pytest.raises(UnsupportedError, match=words):
        evaluate_partitions(module, [arrays])
