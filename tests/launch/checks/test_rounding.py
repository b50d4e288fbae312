"""Tests of verdicts on outputs that differ: amplified rounding is excused, errors in the same programs are not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from launch.checks.expect import Expected, Verdict, check_output, default_tolerance
from launch.checks.rounding import LEAST_SAMPLES, MOST_SAMPLES, Judgement, judge_rounding
from launch.data.inputs import Array
from launch.entry import Entry
from spmd.evaluator import evaluate
from spmd.evaluator.op_tables import REGISTERED
from spmd.evaluator.rounding_noise import RoundingNoise
from spmd.shape import ArrayShape, PrimitiveType
from spmd.text.parser import parse_module
from tests.amplifying_programs import NARROW, PROGRAMS, WHOLE_SUM, Program


def changed(program: Program, *replacements: tuple[str, str]) -> list[Array]:
    """Return the outputs of the program with its text changed."""
    text = program.text
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return evaluate(parse_module(text), *program.inputs)


#: Outputs of programs by text and noise, kept since many verdicts ask for the same samples.
_SAMPLES: dict[tuple[str, RoundingNoise | None], list[Array]] = {}


def sampled(program: Program, noise: RoundingNoise | None) -> list[Array]:
    key = program.text, noise
    if key not in _SAMPLES:
        tables = noise.tables() if noise else REGISTERED
        _SAMPLES[key] = evaluate(parse_module(program.text), *program.inputs, tables=tables)
        for value in _SAMPLES[key]:
            value.flags.writeable = False
    return _SAMPLES[key]


def judged(
    program: Program,
    got: Sequence[Array],
    *,
    want: Sequence[Array] | None = None,
    seconds: float = 60.0,
    excess: bool = False,
) -> tuple[Judgement, int]:
    """Return the judgement of `got` beside `want` (or the reference's own outputs), and how many samples it took."""
    module = parse_module(program.text)
    taken = []

    def sample(noise: RoundingNoise | None) -> list[Array]:
        taken.append(noise)
        return sampled(program, noise)

    want = sample(None) if want is None else want
    expected = [
        Expected(f"out{k}", shape, value, default_tolerance(shape.element_type, value))
        for k, (value, shape) in enumerate(zip(want, Entry.of_module(module).outputs, strict=True))
    ]
    checks = [check_output(g, w) for g, w in zip(got, expected, strict=True)]
    assert not all(check.ok for check in checks), "nothing to judge"
    judgement = judge_rounding(
        got, expected, checks, sample, excess=excess, seconds=seconds, show=lambda _: None
    )
    return judgement, sum(noise is not None for noise in taken)


def verdicts(judgement: Judgement) -> set[Verdict]:
    return {check.verdict for check in judgement.checks}


@pytest.mark.parametrize("name", PROGRAMS)
def test_another_order_of_sums_is_excused(name: str) -> None:
    program = PROGRAMS[name]
    found, _ = judged(program, changed(program, *program.other_order))
    assert Verdict.DIFFERS not in verdicts(found)
    assert Verdict.ROUNDING in verdicts(found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_expectation_that_comes_from_another_order_is_excused(name: str) -> None:
    """The expected outputs come from another order of sums than the reference's."""
    program = PROGRAMS[name]
    other = changed(program, *program.other_order)
    found, _ = judged(program, changed(program), want=other)
    assert verdicts(found) <= {Verdict.AGREES, Verdict.ROUNDING}


WRONG = [(name, change) for name, program in PROGRAMS.items() for change in program.wrong]


@pytest.mark.parametrize(("name", "change"), WRONG)
def test_a_wrong_program_differs(name: str, change: tuple[str, str]) -> None:
    """Swapped operands, elements in another order and wrong choices are not excused."""
    program = PROGRAMS[name]
    assert Verdict.DIFFERS in verdicts(judged(program, changed(program, change))[0])


DAMAGE = [(name, k) for name, program in PROGRAMS.items() for k in range(len(program.damage))]


@pytest.mark.parametrize("order", ["the same order", "another order"])
@pytest.mark.parametrize(("name", "number"), DAMAGE)
def test_one_wrong_element_of_a_noisy_output_differs(name: str, number: int, order: str) -> None:
    program = PROGRAMS[name]
    got = changed(program, *(program.other_order if order == "another order" else ()))
    program.damage[number](got)
    assert Verdict.DIFFERS in verdicts(judged(program, got)[0])


def test_an_expected_choice_that_no_rounding_makes_differs() -> None:
    """The program's own integers are right, and the expected ones are wrong."""
    program = PROGRAMS["argmax"]
    want = changed(program)
    want[0][2] = 15
    assert Verdict.DIFFERS in verdicts(judged(program, changed(program), want=want)[0])


def test_infinities_and_nan_are_excused_only_where_rounding_makes_them() -> None:
    program = PROGRAMS["adam"]
    for value in (np.nan, np.inf):
        got = changed(program, *program.other_order)
        got[0][3] = value
        assert Verdict.DIFFERS in verdicts(judged(program, got)[0])


def test_samples_end_where_they_explain_nothing() -> None:
    program = PROGRAMS["adam"]
    got = changed(program)
    got[0][50] += 1
    assert judged(program, got)[1] == LEAST_SAMPLES


@pytest.mark.parametrize(
    ("moves", "verdict"), [(MOST_SAMPLES - 1, Verdict.ROUNDING), (None, Verdict.DIFFERS)]
)
def test_few_elements_of_many_get_all_samples(moves: int | None, verdict: Verdict) -> None:
    """All samples are taken for one element of a thousand that only one sample moves, or none does."""
    shape = ArrayShape(PrimitiveType.F32, (1000,))
    want, got = np.zeros(1000, np.float32), np.full(1000, 2, np.float32)
    expected = Expected("out", shape, want, default_tolerance(shape.element_type, want))
    taken = []

    def sample(noise: RoundingNoise | None) -> list[Array]:
        moved = np.zeros(1000, np.float32)
        if noise is not None:
            moved[:] = 1
            moved[7] = len(taken) == moves
            taken.append(noise)
        return [moved]

    checks = [check_output(got, expected)]
    judgement = judge_rounding(
        [got], [expected], checks, sample, excess=False, seconds=60.0, show=lambda _: None
    )
    assert verdicts(judgement) == {verdict}
    assert len(taken) == MOST_SAMPLES


def test_no_sample_begins_after_the_limit() -> None:
    program = PROGRAMS["adam"]
    got = changed(program)
    got[0][50] += 1
    found, samples = judged(program, got, seconds=0.0)
    assert samples == 1
    assert "--timeout" in found.note
    assert found.checks[0].verdict is Verdict.DIFFERS


#: Programs whose rounded results look exact by their bits.
LOOK_EXACT = {"narrow": NARROW, "whole sum": WHOLE_SUM}


@pytest.mark.parametrize("name", LOOK_EXACT)
def test_rounded_results_that_look_exact_are_excused_in_another_form(name: str) -> None:
    program = LOOK_EXACT[name]
    other = changed(program, *program.other_order)
    for got, want in ((other, None), (changed(program), other)):
        found, _ = judged(program, got, want=want, excess=True)
        assert verdicts(found) <= {Verdict.AGREES, Verdict.ROUNDING}


WRONG_EXACT = [(name, change) for name, program in LOOK_EXACT.items() for change in program.wrong]


@pytest.mark.parametrize(("name", "change"), WRONG_EXACT)
def test_a_wrong_program_whose_results_look_exact_differs(
    name: str, change: tuple[str, str]
) -> None:
    program = LOOK_EXACT[name]
    found, _ = judged(program, changed(program, change), excess=True)
    assert Verdict.DIFFERS in verdicts(found)


DAMAGE_EXACT = [
    (name, k) for name, program in LOOK_EXACT.items() for k in range(len(program.damage))
]


@pytest.mark.parametrize(("name", "number"), DAMAGE_EXACT)
def test_one_wrong_element_beside_results_that_look_exact_differs(name: str, number: int) -> None:
    """Even an exact element that is wrong by no more than its neighbours' noise is found."""
    program = LOOK_EXACT[name]
    got = changed(program, *program.other_order)
    program.damage[number](got)
    assert Verdict.DIFFERS in verdicts(judged(program, got, excess=True)[0])
