"""Dumps of a compilation, in files named as XLA names those of ``--xla_dump_to``.

module_0000.NAME.before_optimizations.txt
module_0000.NAME.0001.spmd-partitioner.after_spmd-partitioner.before_pipeline-end.txt      after a stage
module_0000.NAME.0004.simplification.after_tuple-simplifier.before_constant-folding.txt    between two passes
module_0000.NAME.after_optimizations.txt                                                   scheduled
module_0000.NAME.after_optimizations-buffer-assignment.txt
module_0000.NAME.thunk_sequence.txt
module_0000.NAME.kernel_0012.FUSION.ll       a kernel's IR; .opt.ll: optimized; .s: assembly; .txt: its record
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from launch.pipeline import Compilation
from runtime.executable import Executable
from spmd.errors import SpmdError
from spmd.output_file import write_file
from spmd.passes.pipeline import PIPELINE_END, Application

#: XLA's names of the pipelines that end in these stages.
_PIPELINES = {
    "propagated": "sharding-propagation",
    "partitioned": "spmd-partitioner",
    "optimized": "optimize",
}
_FIXED_NAMES = {"logical": "before_optimizations", "scheduled": "after_optimizations"}
_EXECUTABLE_DUMPS: dict[str, Callable[[Executable], str]] = {
    "after_optimizations-buffer-assignment": Executable.dump_buffers,
    "thunk_sequence": Executable.dump_thunks,
}


class PatternError(SpmdError):
    """A pattern that is no regular expression."""


class Dumps:
    """Writer of a compilation's dumps into ``folder``: the module ``name`` after each pass or stage, numbered in order.

    ``pattern``: also before and after each optimization pass of such a name that changed the module (before the first
    one it is as the stage before left it); None for none of them.
    """

    def __init__(self, folder: Path, name: str, pattern: str | None) -> None:
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise PatternError(f"--dump-pass-re {pattern}: {error}") from error
        self._folder = folder
        self._stem = f"module_0000.{name}"
        self._number = 0
        #: The last state between two passes, kept in case it is the state before the second pass: (name, text).
        self._between: tuple[str, str] | None = None

    def stage(self, stage: str, compilation: Compilation) -> None:
        """Write the module after ``stage``."""
        name = _FIXED_NAMES.get(stage)
        if name is None:
            pipeline = _PIPELINES[stage]
            name = self._step(pipeline, pipeline, PIPELINE_END)
        self._write(name, str(compilation.module))

    def executable(self, executable: Executable) -> None:
        for name, dump in _EXECUTABLE_DUMPS.items():
            self._write(name, dump(executable))

    def files(self, name: str, texts: Mapping[str, str]) -> None:
        """Write texts by what their files' names end in."""
        for ending, text in texts.items():
            write_file(self._folder / f"{self._stem}.{name}.{ending}", text)

    def after_pass(self, done: Application) -> None:
        """Write a dump after a pass. Pipelines call it after each of their passes."""
        name = self._step(done.pipeline.name, done.step.name, done.following)
        before, self._between = self._between, None
        if done.changed and self._matches(done.step.name):
            if before is not None:
                self._write(*before)
            self._write(name, str(done.module))
        elif self._matches(done.following):
            self._between = (name, str(done.module))

    def _matches(self, name: str) -> bool:
        return self._pattern is not None and self._pattern.search(name) is not None

    def _step(self, pipeline: str, step: str, following: str) -> str:
        self._number += 1
        return f"{self._number:04d}.{pipeline}.after_{step}.before_{following}"

    def _write(self, name: str, text: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._stem}.{name}.txt"
        write_file(path, text.rstrip("\n") + "\n")
