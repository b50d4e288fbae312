"""Dumps of a module between the passes of a pipeline, in files named as XLA names them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from launch.pipeline import Compilation
from spmd.errors import SpmdError
from spmd.passes.interface import HloPass

PIPELINE_END = "pipeline-end"


class PatternError(SpmdError):
    """Not a regular expression."""


class PassDumps:
    """Writes ``compilation``'s module after each pass whose name matches and that changed something.

    module_0000.NAME.0003.optimize.after_dead-code-elimination.before_pipeline-end.txt
    """

    def __init__(
        self,
        compilation: Compilation,
        passes: Sequence[HloPass],
        folder: Path,
        pattern: str,
        pipeline: str = "optimize",
    ) -> None:
        try:
            self.pattern = re.compile(pattern)
        except re.error as error:
            raise PatternError(f"--dump-pass-re {pattern}: {error}") from error
        names = [step.name for step in passes]
        self.next_name = dict(zip(names, [*names[1:], PIPELINE_END], strict=True))
        self.compilation = compilation
        self.folder = folder
        self.pipeline = pipeline
        self.number = 0

    def __call__(self, step: HloPass, changed: bool) -> None:
        self.number += 1
        if not changed or not self.pattern.search(step.name):
            return
        module = self.compilation.module
        name = (
            f"module_0000.{module.name}.{self.number:04d}.{self.pipeline}"
            f".after_{step.name}.before_{self.next_name[step.name]}.txt"
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(str(module), encoding="utf-8")
