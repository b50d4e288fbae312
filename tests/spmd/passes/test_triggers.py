"""Every pass on modules that must set it off; `python -m tests.spmd.passes.triggers` tries many more."""

from __future__ import annotations

import pytest

from spmd.passes.algebraic.rules import IDENTITIES
from tests.spmd.passes.triggers.algebraic_simplifier import FORMS
from tests.spmd.passes.triggers.check import check_trigger
from tests.spmd.passes.triggers.registry import pass_names, trigger_of

COUNT = 6


@pytest.mark.parametrize("name", pass_names())
def test_what_sets_a_pass_off(name: str) -> None:
    trigger = trigger_of(name)
    assert trigger is not None, f"tests/spmd/passes/triggers has no file for {name}"
    for seed in range(COUNT):
        check_trigger(trigger, seed)


def test_every_identity_has_a_form() -> None:
    """The simplifier is set off by each of its identities, not by the frequent ones alone."""
    identities = {rule.__name__ for rules in IDENTITIES.values() for rule in rules}
    assert identities == set(FORMS)
