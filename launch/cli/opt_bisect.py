"""`spmd opt --bisect`: name the pass, and the rewrite, that first changes what a program computes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from launch.checks.equivalence import EquivalenceCheck
from launch.cli.output_path import require_folder
from launch.cli.programs.module_files import write_module, write_text
from spmd.hlo import HloModule
from spmd.passes.bisect import FirstBadPass, bisect
from spmd.passes.pipeline import Pipeline

#: Changed instructions that are printed.
MOST_SHOWN = 12


def run_bisect(module: HloModule, pipelines: Sequence[Pipeline], folder: Path) -> int:
    """Print the culprit among the pipelines' passes and write its smallest example into ``folder``.

    Returns 1 where one was found, 0 where the passes leave what the program computes.
    """
    require_folder(folder)
    check = EquivalenceCheck()
    check.reference(module)
    culprit = bisect(module, pipelines, check)
    if culprit is None:
        write_text(f"{module.name}: the passes keep what it computes", None)
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    before, after = (folder / f"{module.name}.bisect.{side}.hlo" for side in ("before", "after"))
    write_module(culprit.before, before)
    write_module(culprit.after, after)
    write_text("\n".join(_report(module, culprit, before, after)), None)
    return 1


def _report(module: HloModule, culprit: FirstBadPass, before: Path, after: Path) -> list[str]:
    where = f"application {culprit.number} of {culprit.total}"
    if culprit.rewrite is not None:
        where += f", rewrite {culprit.rewrite.number} of {culprit.rewrite.total}"
    shown = [f"  {line}" for line in culprit.changes[:MOST_SHOWN]]
    if len(culprit.changes) > MOST_SHOWN:
        shown.append(f"  and {len(culprit.changes) - MOST_SHOWN} more")
    return [
        f"{module.name}: {culprit.step} changes what it computes ({where}): {culprit.problem}",
        *shown,
        f"smallest example: {before} ({culprit.before.instruction_count} instructions), which becomes {after}",
    ]
