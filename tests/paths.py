"""Paths of the files that tests read: the checkout, the recorded cases, and what may lie beside the checkout."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
#: One folder a case: module.hlo, inputs.npz, expected.npz, case.json.
CASES = TESTS / "cases"
#: The corpus and public modules. It is absent in a clone without them; tests that read it are skipped then.
SHARED = ROOT.parent / "shared"
