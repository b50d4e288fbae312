"""Pipelines: passes in turn until nothing changes, and what is said where that never comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from spmd.errors import VerificationError
from spmd.hlo import HloModule, Opcode, Stage
from spmd.passes.algebraic_simplifier import AlgebraicSimplifier
from spmd.passes.dead_code_elimination import DeadCodeElimination
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import UNSCHEDULED, HloPass
from spmd.passes.pipeline import Application, Pipeline, UnsettledWarning
from spmd.passes.timing import PassTimes
from spmd.passes.tuple_simplifier import TupleSimplifier
from spmd.text.parser import parse_module
from tests.spmd.passes.triggers.registry import pass_names, trigger_of


@dataclass(frozen=True)
class Countdown(HloPass):
    """Takes one copy away from the chain in front of the root."""

    name: ClassVar[str] = "countdown"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED

    def run(self, module: HloModule) -> bool:
        root = module.entry.root
        if root.opcode is not Opcode.COPY:
            return False
        module.entry.replace(root, root.operand(0))
        return True


@dataclass(frozen=True)
class Negation(HloPass):
    """Negates the result, again and again."""

    name: ClassVar[str] = "negation"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED

    def run(self, module: HloModule) -> bool:
        root = module.entry.root
        module.entry.root = module.entry.create(Opcode.NEGATE, root.shape, (root,))
        return True


def copies(count: int) -> HloModule:
    lines = ["x0 = f32[4] parameter(0)"]
    lines += [f"x{i + 1} = f32[4] copy(x{i})" for i in range(count)]
    lines[-1] = f"ROOT {lines[-1]}"
    return parse_module("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n")


def applied(pipeline: Pipeline, module: HloModule) -> list[tuple[str, bool]]:
    return [(done.step.name, done.changed) for done in pipeline.applications(module)]


def test_a_pipeline_ends_where_each_pass_has_found_nothing() -> None:
    pipeline = Pipeline("p", (Countdown(), DeadCodeElimination(), TupleSimplifier()), repeated=True)
    names = [step.name for step in pipeline.passes]
    assert applied(pipeline, copies(2)) == [
        (names[0], True), (names[1], False), (names[2], False),
        (names[0], True), (names[1], False), (names[2], False),
        (names[0], False),
    ]  # fmt: skip
    assert applied(pipeline, copies(0)) == [(name, False) for name in names]


def test_once_is_once() -> None:
    pipeline = Pipeline("p", (Countdown(), DeadCodeElimination()))
    assert [changed for _, changed in applied(pipeline, copies(3))] == [True, False]


def test_passes_that_never_come_to_rest_are_named() -> None:
    pipeline = Pipeline("circle", (Negation(), AlgebraicSimplifier()), repeated=True, max_rounds=3)
    with pytest.warns(UnsettledWarning, match="3 rounds of circle by negation"):
        pipeline.run(copies(0))


def test_applications_are_made_when_they_are_asked_for() -> None:
    module = copies(3)
    pipeline = Pipeline("p", (Countdown(),), repeated=True)
    next(pipeline.applications(module))
    assert len(module.entry) == 3


def test_times_are_added_up() -> None:
    times = PassTimes()
    step = Countdown()
    pipeline = Pipeline("p", (step,), repeated=True)
    module = copies(0)
    for changed, seconds in ((True, 1.0), (False, 0.5)):
        times.add(Application(pipeline, 0, module, changed, seconds))
    assert str(times).splitlines()[1].split() == ["countdown", "2", "1", "1.500"]
    assert str(times).splitlines()[-1].split() == ["total", "1.500"]


def test_a_pass_refuses_a_stage_it_does_not_accept() -> None:
    module = copies(1)
    module.stage = Stage.SCHEDULED
    with pytest.raises(VerificationError, match="countdown accepts"):
        Pipeline("p", (Countdown(),)).run(module)


FUELED = [name for name in pass_names() if isinstance(trigger_of(name).step, FueledPass)]


@pytest.mark.parametrize("name", FUELED)
def test_a_pass_stops_when_its_fuel_is_spent(name: str) -> None:
    """With enough fuel it does what it does without a limit; with none it does nothing."""
    trigger = trigger_of(name)
    step = trigger.step
    for seed in range(6):
        module = [trigger.modules(np.random.default_rng(seed)) for _ in range(3)]
        fuel = Fuel()
        assert step.rewrite(module[0], fuel)
        assert fuel.spent
        assert step.rewrite(module[1], Fuel(fuel.spent))
        assert str(module[1]) == str(module[0])
        text = str(module[2])
        assert not step.rewrite(module[2], Fuel(0))
        assert str(module[2]) == text
