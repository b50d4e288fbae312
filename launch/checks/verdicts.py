"""Verdicts on outputs that differ: whether rounding explains them, and which instruction amplifies it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from launch.checks.amplification import Amplification, amplifiers
from launch.checks.expect import Expected, OutputCheck, Verdict
from launch.checks.reference import ReferenceProgram
from launch.checks.rounding import ULPS, judge_rounding
from launch.data.feed_files import NO_FILES, FeedOptions
from launch.data.inputs import Array
from launch.job import JobResult, evaluate_steps
from launch.ranks.messages import one_line
from spmd.evaluator.op_tables import REGISTERED, OpTables
from spmd.evaluator.rounding_noise import RoundingNoise
from spmd.host_feed import HostFeed
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Question:
    """A run whose outputs differ from expected ones, and the program to evaluate to find the reason.

    feedback: output number -> number of the input that it becomes in the next of ``steps``.
    excess: the expected values may come from a program that computes 16-bit results in f32.
    seconds: no further evaluation begins after this time.
    feeds: files that infeeds read.
    """

    reference: ReferenceProgram
    inputs: Sequence[Array]
    feedback: Mapping[int, int]
    steps: int
    excess: bool
    seconds: float
    feeds: FeedOptions = NO_FILES

    def evaluate(self, tables: OpTables) -> list[Array]:
        """Return the outputs of the last step, and the data of outfeeds."""

        def once(arrays: Sequence[Array], *, feed: HostFeed | None = None) -> list[Array]:
            return self.reference.evaluate(arrays, tables, feed)

        feed = self.reference.feed(self.feeds)
        return evaluate_steps(once, self.feedback, self.inputs, self.steps, feed).values


def explain_by_rounding(
    result: JobResult,
    expected: Sequence[Expected],
    question: Question,
    show: Callable[[str], None],
) -> JobResult:
    """Return `result` with the verdict ROUNDING for outputs whose differences rounding explains.

    Whatever fails on the way (an op that the evaluator does not know) leaves the verdicts as they are, with a note.
    """

    def sample(noise: RoundingNoise | None) -> Sequence[Array]:
        return question.evaluate(REGISTERED if noise is None else noise.tables())

    try:
        judged = judge_rounding(
            result.values[: len(expected)],
            expected,
            result.checks,
            sample,
            excess=question.excess,
            seconds=question.seconds,
            show=show,
        )
        checks = _with_amplifiers(judged.checks, question, len(result.outputs))
    except Exception as error:  # noqa: BLE001 - a failed judgement must not lose the report
        note = f"the check whether rounding explains the difference failed: {one_line(error)}"
        return replace(result, notes=(*result.notes, note))
    notes = (judged.note,) if judged.note else ()
    return replace(result, checks=checks, notes=(*result.notes, *notes))


def _with_amplifiers(
    checks: Sequence[OutputCheck], question: Question, num_outputs: int
) -> list[OutputCheck]:
    """Name the op that amplifies rounding most for each output that rounding explains (of outfeeds none is named)."""
    outputs = enumerate(checks[:num_outputs])
    explained = [k for k, check in outputs if check.verdict is Verdict.ROUNDING]
    if not explained:
        return list(checks)
    noise = RoundingNoise(0, ULPS[0], question.excess)

    def evaluate(amplification: Amplification, noisy: bool) -> None:
        question.evaluate(amplification.observed(noise.tables() if noisy else REGISTERED))

    named = amplifiers(question.reference.module, explained, evaluate)
    return [replace(check, amplified_at=named.get(k, "")) for k, check in enumerate(checks)]
