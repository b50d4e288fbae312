"""docs/walkthrough.md is what a run gives now."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from tests.paths import ROOT

SCRIPT = ROOT / "docs" / "make_walkthrough.py"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_walkthrough", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_walkthrough_is_up_to_date() -> None:
    script = load_script()
    text = script.walkthrough()
    committed = script.RESULT.read_text(encoding="utf-8")
    assert committed == text, "run `python docs/make_walkthrough.py` and look at what changed"
    assert "DIFFERENT FROM" not in text
