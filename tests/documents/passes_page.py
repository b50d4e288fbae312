"""Write docs/passes.md, the page of passes, from the registry and from what was measured on the corpus.

python -m tests.documents.passes_page                           write the page anew
python -m tests.documents.passes_page --measure MODULE...       first measure which of these modules each pass changes

A MODULE is an HLO file, or a folder with module.hlo and case.json. What was measured lies in passes_measured.json, so
that the page can be written without the modules. The page says "not measured" of a pass that was added since.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import Any

import collectives.passes.all_passes  # noqa: F401 - fills the registry
import spmd.passes.all_passes  # noqa: F401 - fills the registry
from launch.collective_groups import CollectiveGroup
from launch.options import CompileOptions
from launch.pipeline import (
    ATTENTION,
    CONVOLUTIONS,
    F8_PRODUCTS,
    FUSION,
    OPEN,
    optimization,
    stages,
)
from launch.stages.collective_pipelines import on_optimized, on_scheduled
from spmd.hlo import HloModule
from spmd.machine.named import machine_named
from spmd.passes.interface import PASSES, HloPass, option_fields, option_text
from spmd.passes.pipeline import AfterPass, Application, Pipeline
from spmd.text.sources.load import load
from tests.paths import ROOT, TESTS

DOCUMENT = ROOT / "docs" / "passes.md"
MEASURED = TESTS / "documents" / "passes_measured.json"
NOT_KEPT = ROOT / "docs" / "passes_not_kept.toml"
FIXTURES = TESTS / "hlo" / "passes"

PIPELINES: tuple[Pipeline, ...] = (OPEN, *optimization(CompileOptions()), FUSION)
#: A machine that computes while bytes move, and the pipelines that it has besides.
OVERLAPPING = CompileOptions(machine=machine_named("tcp-cluster"))
FOR_OVERLAP = tuple(
    x
    for x in (*on_optimized(OVERLAPPING), *on_scheduled(OVERLAPPING))
    if x.name not in {one.name for one in PIPELINES}
)
#: The pipelines that a GPU has besides.
FOR_GPU = (F8_PRODUCTS, ATTENTION, CONVOLUTIONS)
#: The number of modules that a row names.
MOST_NAMED = 3


# ---- measuring
@dataclass
class Measured:
    """Measurements of one pass: the modules that it changed, its CPU seconds on all of them, and how often it ran."""

    changed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    runs: int = 0


@dataclass
class Rounds:
    """CPU seconds of repeated pipelines: first rounds, later ones, and those of later ones after the last change."""

    first: float = 0.0
    later: float = 0.0
    at_rest: float = 0.0

    def of_one_module(self) -> AfterPass:
        """Return a callback that adds up the passes on one module."""
        runs: Counter[int] = Counter()
        since_change = 0.0

        def note(done: Application) -> None:
            nonlocal since_change
            if not done.pipeline.repeated:
                return
            self.at_rest -= since_change
            if runs[done.index]:
                self.later += done.seconds
                since_change = 0.0 if done.changed else since_change + done.seconds
            else:
                self.first += done.seconds
            runs[done.index] += 1
            self.at_rest += since_change

        return note


def measure(places: list[Path]) -> dict[str, Any]:
    found: dict[str, Measured] = {}
    rounds = Rounds()
    start = time.process_time()
    for place in places:
        name = name_of(place)
        add_round = rounds.of_one_module()

        def note(done: Application, name: str = name, add_round: AfterPass = add_round) -> None:
            row = found.setdefault(done.step.name, Measured())
            row.seconds += done.seconds
            row.runs += 1
            if done.changed and name not in row.changed:
                row.changed.append(name)
            add_round(done)

        def note_overlap(done: Application, name: str = name) -> None:
            if done.changed and is_among(done.step.name, FOR_OVERLAP):
                row = found.setdefault(done.step.name, Measured())
                if name not in row.changed:
                    row.changed.append(name)

        carry(place, note)
        carry(place, note_overlap, OVERLAPPING)
        print(name, file=sys.stderr, flush=True)
    rows = {
        name: {"changed": row.changed, "seconds": round(row.seconds, 4), "runs": row.runs}
        for name, row in sorted(found.items())
    }
    return {
        "modules": len(places),
        "seconds": round(time.process_time() - start, 4),
        "rounds": {name: round(value, 4) for name, value in asdict(rounds).items()},
        "passes": rows,
    }


def name_of(place: Path) -> str:
    """Return the module's name on the page.

    A folder of the zoo is named by its number of devices, and lies in a folder named by the program.
    """
    if place.name.isdigit():
        return f"{place.parent.name} on {place.name}"
    return place.name if place.is_dir() else place.stem


def module_at(place: Path) -> tuple[HloModule, int | None]:
    """Return the module at ``place``, and its devices if they are known."""
    if not place.is_dir():
        return load(place), None
    about = json.loads((place / "case.json").read_text(encoding="utf-8"))
    return load(place / "module.hlo"), about.get("num_partitions") or about["devices"]


def carry(place: Path, note: AfterPass, options: CompileOptions | None = None) -> None:
    """Carry the module at ``place`` through all pipelines."""
    for _, compilation in stages(*module_at(place), options or CompileOptions()):
        compilation.after_pass = note


# ---- writing
def document() -> str:
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    total = sum(row["seconds"] for row in measured["passes"].values())
    return "\n".join([*_opening(measured, total), *_rows(measured, total), *_not_kept()]) + "\n"


def _opening(measured: dict[str, Any], total: float) -> Iterator[str]:
    yield from (
        "# Passes",
        "",
        "Built by `python -m tests.documents.passes_page`; a test holds it up to date.",
        "",
        "A pass changes a module and says whether it did. `spmd opt MODULE --passes=NAME{option=value},..` runs some;",
        "`spmd opt --until optimized` runs the pipelines:",
        "",
    )
    yield from _listed(PIPELINES)
    yield from (
        "",
        f"On a machine that computes while bytes move (docs/machines.md), these run, too, here for {OVERLAPPING.machine.name}, the last",
        f"one on the schedule, behind {FUSION.name}, the others in this order between {CollectiveGroup.SIMPLIFICATION} and",
        f"{CollectiveGroup.COMBINING}:",
        "",
    )
    yield from _listed(FOR_OVERLAP)
    yield from (
        "",
        "On a GPU these run, too: the first before partitioning and after simplification, the others between cleanup and annotation:",
        "",
    )
    yield from _listed(FOR_GPU)
    yield from (
        "",
        "Each pass has a trigger (tests/spmd/passes/triggers), which writes random modules that it must change:",
        "`python -m tests.spmd.passes.triggers` tries 500 of each, verifies what is left, and evaluates both sides. Each has a",
        "fixture with its name.",
        "",
        *_how_it_comes_to_rest(measured),
        "",
        f"*Changes* counts the modules of {measured['modules']} (JAX's recorded steps and public programs, each partitioned, for",
        "which logical programs are simplified once already) that the pass changed in its pipeline; *time* is its part of the",
        f"{total:.1f} CPU seconds that all passes took on them. *Without* says how much longer the predicted step takes without",
        "the pass, or how much more memory, where that is most of up to twelve modules drawn from those that it changes; *needed*:",
        "they do not compile without it (`python -m tests.documents.pass_worth`).",
        "",
        "| pass | what it does | options | changes | among them | time | without |",
        "|---|---|---|---|---|---|---|",
    )


def _listed(pipelines: Iterable[Pipeline]) -> Iterator[str]:
    for pipeline in pipelines:
        how = "in turn until nothing changes" if pipeline.repeated else "once"
        where = " (where there was a change)" if pipeline.after_change else ""
        names = ", ".join(f"`{step}`" for step in pipeline.passes)
        yield from wrap(
            f"* **{pipeline.name}**, {how}{where}: {names}",
            width=120,
            subsequent_indent="  ",
            break_on_hyphens=False,
        )


def _how_it_comes_to_rest(measured: dict[str, Any]) -> list[str]:
    rounds = measured["rounds"]
    return wrap(
        "Within a pass, what a rewrite made or touched comes back onto a work list (algebraic-simplifier), or one walk, "
        "operands first, finds all there is. Between passes there is no work list: the next round walks over the whole "
        "module, because how far identities look has no bound that would say which instructions to look at again. First "
        f"rounds took {rounds['first']:.1f} of the {measured['seconds']:.1f} CPU seconds from text to planned kernels, "
        f"later ones {rounds['later']:.1f}. Of these, {rounds['at_rest']:.1f} came after the last change: it is what it "
        "takes to know that nothing is left to do, with or without a list of what was changed.",
        width=120,
        break_on_hyphens=False,
    )


def _rows(measured: dict[str, Any], total: float) -> Iterator[str]:
    for name in sorted(PASSES):
        kind = PASSES[name]
        cells = [_link(kind), summary(kind), _options(kind), *_figures(name, measured, total)]
        yield f"| {' | '.join(cells)} |"


def _link(kind: type[HloPass]) -> str:
    """Return links to the source, and to the fixture if there is one."""
    source = "../" + kind.__module__.replace(".", "/") + ".py"
    fixture = fixture_of(kind)
    shown = f" ([fixture](../{fixture.relative_to(ROOT).as_posix()}))" if fixture.exists() else ""
    return f"[{kind.name}]({source}){shown}"


def fixture_of(kind: type[HloPass]) -> Path:
    return FIXTURES / f"{kind.__module__.rpartition('.')[2]}.hlo"


def summary(kind: type[HloPass]) -> str:
    """Return what the pass's file says that it does: the first line of its docstring."""
    source = importlib.import_module(kind.__module__).__file__
    assert source is not None
    text = ast.get_docstring(ast.parse(Path(source).read_text(encoding="utf-8")))
    assert text is not None
    return text.splitlines()[0].replace("|", "\\|")


def _options(kind: type[HloPass]) -> str:
    return ", ".join(
        f"`{f.name.replace('_', '-')}={option_text(f.default)}`" for f in option_fields(kind)
    )


def _figures(name: str, measured: dict[str, Any], total: float) -> tuple[str, str, str, str]:
    row = measured["passes"].get(name)
    if not is_among(name, PIPELINES):
        return _pipelines_of(name), "", "", _worth(row)
    if row is None:
        return "not measured", "", "", ""
    named = row["changed"][:MOST_NAMED]
    more = ", ..." if len(row["changed"]) > MOST_NAMED else ""
    share = f"{row['seconds'] / total:.1%}"
    return str(len(row["changed"])), ", ".join(named) + more, share, _worth(row)


def _pipelines_of(name: str) -> str:
    """Return where a pass runs that is in no pipeline of a machine with processors alone."""
    if is_among(name, FOR_OVERLAP):
        return "for overlap"
    return "for GPUs" if is_among(name, FOR_GPU) else "in no pipeline"


def _worth(row: dict[str, Any] | None) -> str:
    worth = None if row is None else row.get("worth")
    if worth is None:
        return ""
    if not worth["tried"]:
        return "needed"
    parts = [f"{worth['time']:.2f} `{worth['time_at']}`"] if worth["time_at"] else []
    if worth["memory_at"]:
        parts.append(f"memory {worth['memory']:.2f} `{worth['memory_at']}`")
    if worth["needed"]:
        parts.append(f"needed by {worth['needed']}")
    return ", ".join(parts) or "1.00"


def is_among(name: str, pipelines: Iterable[Pipeline]) -> bool:
    return any(step.name == name for pipeline in pipelines for step in pipeline.passes)


def _not_kept() -> Iterator[str]:
    """Yield the lines of the passes in passes_not_kept.toml."""
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
