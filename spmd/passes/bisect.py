"""Find the first application of a pass after which a program no longer means what it did, down to one rewrite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from spmd.errors import SpmdError
from spmd.hlo.clone import clone_module
from spmd.hlo.module import HloModule
from spmd.lazy_dataclass import dataclass
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import HloPass
from spmd.passes.minimize import minimize
from spmd.passes.pipeline import Application, Pipeline, apply

#: Describes how the second module differs in meaning from the first one; "" if it does not. Both stay unchanged.
Problem = Callable[[HloModule, HloModule], str]

#: Most evaluations in the search for the smallest example.
ATTEMPTS = 400


@dataclass(frozen=True)
class Rewrite:
    """The ``number``-th of all ``total`` rewrites of an application, from 1."""

    number: int
    total: int


@dataclass(frozen=True)
class FirstBadPass:
    """The application, the ``number``-th of ``total`` (from 1), that made the program wrong, and how.

    ``rewrite``: the wrong rewrite in it, if the pass can be stopped between two rewrites. ``changes``: the instructions
    that the rewrite, or the application, removed (``- ..``) and added (``+ ..``). ``before``: the smallest module found
    on which the pass goes wrong; ``after``: its result.
    """

    step: HloPass
    number: int
    total: int
    problem: str
    rewrite: Rewrite | None
    changes: tuple[str, ...]
    before: HloModule
    after: HloModule


def bisect(
    module: HloModule, pipelines: Sequence[Pipeline], problem: Problem
) -> FirstBadPass | None:
    """Find the first application of ``pipelines`` after which ``module`` is wrong. Returns None if the result is right.

    An application that raises an error, or whose result does not verify, is wrong if ``problem`` says so.
    """
    steps = _steps(module, pipelines)
    changing = [number for number, (_, changed) in enumerate(steps, 1) if changed]

    def wrong(count: int) -> str:
        return _problem_after(lambda m: _advance(m, pipelines, count), module, problem)

    number, found = _first(changing, wrong)
    if number is None:
        return None
    step = steps[number - 1][0]
    before = clone_module(module)
    _advance(before, pipelines, number - 1)
    narrow = _single_rewrite(before, step, problem) or _Narrowed(
        before, _applied(step, before), None, found
    )
    changes = instruction_changes(narrow.before, narrow.after)
    small = _smallest(narrow.before, step, problem, changes)
    after = _applied(step, small)
    return FirstBadPass(
        step, number, len(steps), narrow.problem, narrow.rewrite, changes, small, after
    )


def _applications(module: HloModule, pipelines: Sequence[Pipeline]) -> Iterator[Application]:
    for pipeline in pipelines:
        yield from pipeline.applications(module)


def _advance(module: HloModule, pipelines: Sequence[Pipeline], count: int) -> None:
    """Run the first ``count`` applications on ``module``."""
    done = _applications(module, pipelines)
    for _ in range(count):
        next(done)


def _steps(module: HloModule, pipelines: Sequence[Pipeline]) -> list[tuple[HloPass, bool]]:
    """Return the pass of every application and whether it changed the module. An application that fails ends the list
    and counts as a change.
    """
    copy = clone_module(module)
    steps: list[tuple[HloPass, bool]] = []
    for pipeline in pipelines:
        index = 0
        try:
            for done in pipeline.applications(copy):
                steps.append((done.step, done.changed))
                index = (done.index + 1) % len(pipeline.passes)
        except SpmdError:
            steps.append((pipeline.passes[index], True))
            break
    return steps


def _problem_after(edit: Callable[[HloModule], object], module: HloModule, problem: Problem) -> str:
    """Return the problem of a copy of ``module`` after ``edit``; empty if there is none."""
    copy = clone_module(module)
    try:
        edit(copy)
    except SpmdError as error:
        return f"the pass fails: {error}"
    return problem(module, copy)


def _first(candidates: Sequence[int], wrong: Callable[[int], str]) -> tuple[int | None, str]:
    """Return the first of ``candidates`` (ascending) that is wrong, by binary search, and what is wrong with it."""
    found = wrong(candidates[-1]) if candidates else ""
    if not found:
        return None, ""
    low, high = -1, len(candidates) - 1
    while high - low > 1:
        middle = (low + high) // 2
        here = wrong(candidates[middle])
        low, high, found = (low, middle, here) if here else (middle, high, found)
    return candidates[high], found


@dataclass(frozen=True)
class _Narrowed:
    """The module just before and just after it becomes wrong."""

    before: HloModule
    after: HloModule
    rewrite: Rewrite | None
    problem: str


def _single_rewrite(before: HloModule, step: HloPass, problem: Problem) -> _Narrowed | None:
    """Return the first bad rewrite; None if the pass cannot be stopped, or only its last actions are wrong."""
    if not isinstance(step, FueledPass):
        return None
    total = _rewrites(before, step)

    def wrong(count: int) -> str:
        return _problem_after(lambda m: step.rewrite(m, Fuel(count)), before, problem)

    number, found = _first(range(1, total + 1), wrong)
    if number is None:
        return None
    last, after = clone_module(before), clone_module(before)
    step.rewrite(last, Fuel(number - 1))
    with suppress(SpmdError):
        step.rewrite(after, Fuel(number))
    return _Narrowed(last, after, Rewrite(number, total), found)


def _rewrites(module: HloModule, step: FueledPass) -> int:
    """Return the number of rewrites of the pass, a failing one included."""
    fuel = Fuel()
    try:
        step.rewrite(clone_module(module), fuel)
    except SpmdError:
        return fuel.spent + 1
    return fuel.spent


def _smallest(
    before: HloModule, step: HloPass, problem: Problem, changes: Sequence[str]
) -> HloModule:
    """Return the smallest module found on which the pass goes wrong. This is ``before`` if the pass does not go wrong
    on a part of it.
    """

    def fails(module: HloModule) -> bool:
        return bool(_problem_after(lambda m: apply(step, m), module, problem))

    if not fails(before):
        return before
    names = [line.split()[1] for line in changes if line.startswith("-")]
    return minimize(before, fails, around=names, attempts=ATTEMPTS)


def _applied(step: HloPass, module: HloModule) -> HloModule:
    """Return a copy after the pass. If the pass fails, the copy is as the pass left it."""
    copy = clone_module(module)
    with suppress(SpmdError):
        apply(step, copy)
    return copy


def instruction_changes(before: HloModule, after: HloModule) -> tuple[str, ...]:
    """Return the instructions that were removed or changed (``- ..``), then new and changed ones (``+ ..``)."""
    old, new = ({x.name: repr(x) for x in m.all_instructions()} for m in (before, after))
    gone = [f"- {text}" for name, text in old.items() if new.get(name) != text]
    come = [f"+ {text}" for name, text in new.items() if old.get(name) != text]
    return (*gone, *come)
