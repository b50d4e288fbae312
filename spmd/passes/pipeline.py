"""Pipelines: passes in order, once or in turn until none of them changes anything."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence

from spmd.hlo.module import HloModule
from spmd.lazy_dataclass import dataclass
from spmd.passes.interface import HloPass, PassResult

#: Number of rounds after which a pipeline counts as cyclic; simplification settles in three or four.
MAX_ROUNDS = 25

#: Name of the next pass in dumps after the last one, as in XLA.
PIPELINE_END = "pipeline-end"


class UnsettledWarning(UserWarning):
    """Passes still undo each other's work: the program is right, but not as simple as it could be."""


@dataclass(frozen=True, slots=True)
class Application:
    """One run of the ``index``-th pass of ``pipeline`` on ``module``, done: whether it changed it; CPU seconds; the
    pass's notes."""

    pipeline: Pipeline
    index: int
    module: HloModule
    changed: bool
    seconds: float
    notes: tuple[object, ...] = ()

    @property
    def step(self) -> HloPass:
        return self.pipeline.passes[self.index]

    @property
    def following(self) -> str:
        """The name of the next pass, or that of the end: a repeated pipeline may begin again there."""
        rest = self.pipeline.passes[self.index + 1 :]
        return rest[0].name if rest else PIPELINE_END


#: Called after each application of a pass: dumps, timing, verification.
AfterPass = Callable[[Application], None]


@dataclass(frozen=True)
class Pipeline:
    """Passes under a name that dumps show. ``repeated``: in turn, until each has found nothing since the last change.

    A pass that has found nothing runs again only after another one has changed the module, so the last round ends where
    the last change was made in the round before. ``after_change``: only where something has changed since the last
    repeated pipeline came to rest.
    """

    name: str
    passes: tuple[HloPass, ...]
    repeated: bool = False
    max_rounds: int = MAX_ROUNDS
    after_change: bool = False

    def applications(self, module: HloModule) -> Iterator[Application]:
        """Yield each application after it was made. Warns with UnsettledWarning of passes that reach no fixpoint."""
        changing: list[str] = []
        unchanged = 0
        for number in range(len(self.passes) * (self.max_rounds if self.repeated else 1)):
            index = number % len(self.passes)
            if index == 0:
                changing.clear()
            done = self._apply(index, module)
            unchanged = 0 if done.changed else unchanged + 1
            if done.changed:
                changing.append(done.step.name)
            yield done
            if unchanged == len(self.passes):
                return
        if self.repeated and changing:
            warnings.warn(
                f"{module.name}: still changed after {self.max_rounds} rounds of {self.name} by {', '.join(changing)}",
                UnsettledWarning,
                stacklevel=2,
            )

    def run(self, module: HloModule, after: AfterPass | None = None) -> bool:
        """Run all applications. Returns whether any changed the module."""
        changed = False
        for done in self.applications(module):
            changed |= done.changed
            if after is not None:
                after(done)
        return changed

    def _apply(self, index: int, module: HloModule) -> Application:
        start = time.thread_time()
        result = apply(self.passes[index], module)
        seconds = time.thread_time() - start
        return Application(self, index, module, result.changed, seconds, result.notes)


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a sequence of pipelines, of which ``done`` have run. ``at_rest``: nothing has changed since the last
    repeated pipeline came to rest.
    """

    done: int = 0
    at_rest: bool = False


def run_pipelines(
    module: HloModule,
    pipelines: Sequence[Pipeline],
    after: AfterPass | None = None,
    progress: Progress | None = None,
) -> Progress:
    """Run the pipelines one after the other, those that ``progress`` leaves. Returns the progress at the end."""
    progress = progress or Progress()
    at_rest = progress.at_rest
    for pipeline in pipelines[progress.done :]:
        if pipeline.after_change and at_rest:
            continue
        found = pipeline.run(module, after)
        at_rest = pipeline.repeated or (at_rest and not found)
    return Progress(len(pipelines), at_rest)


def apply(step: HloPass, module: HloModule) -> PassResult:
    """Run one pass on a module of a stage that it accepts: every application of every pipeline comes through here."""
    step.check_stage(module)
    return step.run_with_notes(module)


def run_passes(module: HloModule, passes: Iterable[HloPass]) -> bool:
    """Run the passes in turn until none changes anything. Returns whether any changed the module."""
    return Pipeline("passes", tuple(passes), True).run(module)
