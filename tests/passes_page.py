"""The page of passes: docs/passes.md, from the registry and from what was measured on the corpus.

python -m tests.passes_page                           write the page anew
python -m tests.passes_page --measure MODULE...       first measure which of these modules each pass changes

A MODULE is an HLO file, or a folder with module.hlo and case.json. What was measured lies in passes_measured.json, so
that the page can be written without the modules. A pass that was added since says "not measured".
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from textwrap import wrap
from typing import Any

import spmd.passes.all_passes  # noqa: F401 - fills the registry
from launch.options import CompileOptions
from launch.pipeline import OPEN, OPTIMIZE, stages
from spmd.passes.interface import PASSES, HloPass, option_text
from spmd.passes.pipeline import Application, Pipeline
from spmd.text.load import load

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "passes.md"
MEASURED = Path(__file__).parent / "passes_measured.json"
NOT_KEPT = ROOT / "docs" / "passes_not_kept.toml"
FIXTURES = Path(__file__).parent / "hlo" / "passes"

PIPELINES: tuple[Pipeline, ...] = (OPEN, *OPTIMIZE)
#: Modules that a row names.
MOST_NAMED = 3


# ---- measuring
@dataclass
class Measured:
    """Of one pass: the modules that it changed, its CPU seconds on all of them, and how often it ran."""

    changed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    runs: int = 0


def measure(places: list[Path]) -> dict[str, Any]:
    found: dict[str, Measured] = {}
    for place in places:
        name = place.name if place.is_dir() else place.stem

        def note(done: Application, name: str = name) -> None:
            row = found.setdefault(done.step.name, Measured())
            row.seconds += done.seconds
            row.runs += 1
            if done.changed and name not in row.changed:
                row.changed.append(name)

        carry(place, note)
        print(name, file=sys.stderr, flush=True)
    rows = {
        name: {"changed": row.changed, "seconds": round(row.seconds, 4), "runs": row.runs}
        for name, row in sorted(found.items())
    }
    return {"modules": len(places), "passes": rows}


def carry(place: Path, note: Any) -> None:
    """The module at ``place`` through all pipelines."""
    devices = None
    if place.is_dir():
        about = json.loads((place / "case.json").read_text(encoding="utf-8"))
        devices, place = about["num_partitions"], place / "module.hlo"
    for stage, compilation in stages(load(place), devices, CompileOptions()):
        compilation.after_pass = note
        if stage == "optimized":
            return


# ---- writing
def document() -> str:
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    total = sum(row["seconds"] for row in measured["passes"].values())
    return "\n".join([*_opening(measured, total), *_rows(measured, total), *_not_kept()]) + "\n"


def _opening(measured: dict[str, Any], total: float) -> Iterator[str]:
    yield from (
        "# Passes",
        "",
        "Built by `python -m tests.passes_page`; a test holds it up to date.",
        "",
        "A pass changes a module and says whether it did. `spmd opt MODULE --passes=NAME{option=value},..` runs some;",
        "`spmd opt --until optimized` runs the pipelines:",
        "",
    )
    for pipeline in PIPELINES:
        how = "in turn until nothing changes" if pipeline.repeated else "once"
        names = ", ".join(f"`{step}`" for step in pipeline.passes)
        yield from wrap(
            f"* **{pipeline.name}**, {how}: {names}",
            width=120,
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
    yield from (
        "",
        "Each pass has a trigger (tests/spmd/passes/triggers), which writes random modules that it must change:",
        "`python -m tests.spmd.passes.triggers` tries 500 of each, verifies what is left, and evaluates both sides. Each has a",
        "fixture with its name.",
        "",
        f"*Changes* counts the modules of {measured['modules']} (JAX's recorded steps and public programs, each partitioned, for",
        "which logical programs are simplified once already) that the pass changed in its pipeline; *time* is its part of the",
        f"{total:.1f} CPU seconds that all passes took on them.",
        "",
        "| pass | what it does | options | changes | among them | time |",
        "|---|---|---|---|---|---|",
    )


def _rows(measured: dict[str, Any], total: float) -> Iterator[str]:
    for name in sorted(PASSES):
        kind = PASSES[name]
        cells = [_link(kind), summary(kind), _options(kind), *_figures(name, measured, total)]
        yield f"| {' | '.join(cells)} |"


def _link(kind: type[HloPass]) -> str:
    """To the source, and to the fixture."""
    source = "../" + kind.__module__.replace(".", "/") + ".py"
    fixture = fixture_of(kind)
    shown = f" ([fixture](../{fixture.relative_to(ROOT).as_posix()}))" if fixture.exists() else ""
    return f"[{kind.name}]({source}){shown}"


def fixture_of(kind: type[HloPass]) -> Path:
    return FIXTURES / f"{kind.__module__.rpartition('.')[2]}.hlo"


def summary(kind: type[HloPass]) -> str:
    """What the pass's file says it does: the first line of its docstring."""
    source = importlib.import_module(kind.__module__).__file__
    assert source is not None
    text = ast.get_docstring(ast.parse(Path(source).read_text(encoding="utf-8")))
    assert text is not None
    return text.splitlines()[0].replace("|", "\\|")


def _options(kind: type[HloPass]) -> str:
    return ", ".join(f"`{f.name.replace('_', '-')}={option_text(f.default)}`" for f in fields(kind))  # type: ignore[arg-type]


def _figures(name: str, measured: dict[str, Any], total: float) -> tuple[str, str, str]:
    if not any(step.name == name for pipeline in PIPELINES for step in pipeline.passes):
        return "in no pipeline", "", ""
    row = measured["passes"].get(name)
    if row is None:
        return "not measured", "", ""
    named = row["changed"][:MOST_NAMED]
    more = ", ..." if len(row["changed"]) > MOST_NAMED else ""
    return str(len(row["changed"])), ", ".join(named) + more, f"{row['seconds'] / total:.1%}"


def _not_kept() -> Iterator[str]:
    """From passes_not_kept.toml."""
    yield from (
        "",
        "## Not here",
        "",
        "Passes of XLA's that this project does without, and why.",
        "",
        "| pass | why not |",
        "|---|---|",
    )
    for name, reason in sorted(tomllib.loads(NOT_KEPT.read_text(encoding="utf-8")).items()):
        yield f"| {name} | {reason} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", type=Path, nargs="+", metavar="MODULE")
    options = parser.parse_args()
    if options.measure:
        MEASURED.write_text(json.dumps(measure(options.measure), indent=1) + "\n")
    DOCUMENT.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
