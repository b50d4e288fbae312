"""Every pass on modules that must set it off; `python -m tests.spmd.passes.triggers` tries many more."""

from __future__ import annotations

import math

import numpy as np
import pytest

from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, HloModule
from spmd.ops.groups import device_groups
from spmd.passes.algebraic.rules import IDENTITIES, Identity
from spmd.shape import ArrayShape, PrimitiveType
from spmd.text.parser import parse_module
from spmd.verifier import verify
from tests.spmd.passes.triggers.algebraic_simplifier import FORMS
from tests.spmd.passes.triggers.check import TriggerFailure, check_trigger
from tests.spmd.passes.triggers.devices import (
    all_reduce,
    equal_groups,
    ids_of,
    meeting,
    reducing_mode,
    several_devices,
)
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, Trigger, pass_names, trigger_of

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


def wrong(rule: Identity) -> Identity:
    """The identity's result, and one."""

    def mutant(x: HloInstruction, b: Builder) -> HloInstruction | None:
        result = rule(x, b)
        if result is None:
            return None
        if result.array_shape.element_type is PrimitiveType.PRED:
            return b.logical_not(result)
        return b.add(result, b.full(result.array_shape, 1))

    mutant.__name__ = rule.__name__
    return mutant


@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_wrong_identity_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for opcode, rules in IDENTITIES.items():
        bad = [wrong(rule) if rule.__name__ == name else rule for rule in rules]
        monkeypatch.setitem(IDENTITIES, opcode, bad)

    def modules(rng: Rng) -> HloModule:
        p = Program(rng)
        return p.module(FORMS[name](p))

    trigger = Trigger("algebraic-simplifier", modules)
    assert any(fails(trigger, seed) for seed in range(20))


def fails(trigger: Trigger, seed: int) -> bool:
    try:
        check_trigger(trigger, seed)
    except TriggerFailure:
        return True
    return False


def test_groups_of_several_devices() -> None:
    """Groups that generators write come back from text, in every form, with each device in one group."""
    forms = set()
    for seed in range(40):
        p = several_devices(np.random.default_rng(seed))
        mode = reducing_mode(p)
        groups = equal_groups(p, ids_of(p, mode))
        x = p.parameter(ArrayShape(PrimitiveType.F32, (4,)))
        module = p.module(all_reduce(p, [x], meeting(p, mode, groups), ReductionKind.SUM))
        verify(module)
        counts = module.num_partitions, module.replica_count
        met = device_groups(module.entry.root, *counts)
        assert sorted(d for group in met for d in group) == list(range(math.prod(counts)))
        assert device_groups(parse_module(str(module)).entry.root, *counts) == met
        forms.add((groups.is_all, groups.iota is None, groups.mesh is None))
    assert len(forms) == 4
