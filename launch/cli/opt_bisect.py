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

#: Number of changed instructions that are printed.
MOST_SHOWN = 12


def run_bisect(module: HloModule, pipelines: Sequence[Pipeline], folder: Path) -> int:
    """Print the first wrong pass of the pipelines and write its smallest example into ``folder``.

    Returns 1 if one was found, 0 if the passes preserve the program's results.
    """
    require_folder(folder)
    check = EquivalenceCheck()
    check.reference(module)
    first_bad = bisect(module, pipelines, check)
    if first_bad is None:
        write_text(f"{module.name}: no pass changes its results", None)
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    before, after = (folder / f"{module.name}.bisect.{side}.hlo" for side in ("before", "after"))
    write_module(first_bad.before, before)
    write_module(first_bad.after, after)
    write_text("\n".join(_report(module, first_bad, before, after)), None)
    return 1


def _report(module: HloModule, first_bad: FirstBadPass, before: Path, after: Path) -> list[str]:
    where = f"application {first_bad.number} of {first_bad.total}"
    if first_bad.rewrite is not None:
        where += f", rewrite {first_bad.rewrite.number} of {first_bad.rewrite.total}"
    shown = [f"  {line}" for line in first_bad.changes[:MOST_SHOWN]]
    if len(first_bad.changes) > MOST_SHOWN:
        shown.append(f"  and {len(first_bad.changes) - MOST_SHOWN} more")
    return [
        f"{module.name}: {first_bad.step} changes its results ({where}): {first_bad.problem}",
        *shown,
        f"smallest example: {before} ({first_bad.before.instruction_count} instructions), which becomes {after}",
    ]
