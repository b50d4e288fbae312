"""The generated part of docs/xla_modules.md: totals, and what does not agree or was not compared, by reason."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

AGREES = ("agrees", "agrees but for rounding")
WRONG = ("differs", "fails")
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"

#: Names and numbers within reasons, which differ from module to module.
_DETAIL = re.compile(r"\"[^\"]*\"|'[^']*'|\S*\d\S*|/\S+|%\S+|\S+ = ")
#: How many reasons of modules that XLA does not run are listed.
_COMMON = 12


def write_page(page: Path, rows: Mapping[str, Sequence[Any]], found: int) -> None:
    """Write the generated part of ``page`` again; ``rows``: [verdict, reason, devices, source] by module."""
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    lines = "\n".join(_generated(rows, found))
    page.write_text(f"{before}{BEGIN}\n\n{lines}\n\n{END}{after}")


def totals(rows: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """Return how many modules have each verdict; "run" are those that XLA CPU runs and that have one result."""
    counts = collections.Counter(row[0] for row in rows.values())
    agree = sum(counts[verdict] for verdict in AGREES)
    return {**counts, "agree": agree, "run": agree + sum(counts[verdict] for verdict in WRONG)}


def _generated(rows: Mapping[str, Sequence[Any]], found: int) -> Iterator[str]:
    yield f"{found} modules found, {len(rows)} tried:"
    yield ""
    yield "| | one device | several |"
    yield "|---|---:|---:|"
    sides = [
        totals({n: r for n, r in rows.items() if (r[2] > 1) is many}) for many in (False, True)
    ]
    for title, key in (
        ("XLA CPU runs, and the result is defined", "run"),
        ("of these, agree", "agree"),
        ("... of these, differ only by rounding that the program amplifies", AGREES[1]),
        ("differ", "differs"),
        ("do not run here", "fails"),
        ("left to the implementation", "left to the implementation"),
        ("unsound", "unsound"),
        ("left out", "left out"),
        ("not run by XLA CPU", "not run by XLA"),
    ):
        yield f"| {title} | {sides[0].get(key, 0)} | {sides[1].get(key, 0)} |"
    for title, verdicts in (
        ("Do not agree", WRONG),
        ("Not compared", ("left to the implementation", "unsound", "left out")),
    ):
        yield from ("", f"{title}:", "", "| modules | reason | one of them |", "|---:|---|---|")
        yield from _by_reason(rows, verdicts)
    yield from (
        "",
        "Not run by XLA CPU, the most common reasons:",
        "",
        "| modules | reason | one of them |",
    )
    yield "|---:|---|---|"
    yield from list(_by_reason(rows, ("not run by XLA",)))[:_COMMON]


def _by_reason(rows: Mapping[str, Sequence[Any]], verdicts: Sequence[str]) -> Iterator[str]:
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for name, (verdict, reason, _, source) in sorted(rows.items()):
        if verdict in verdicts:
            groups[_kind(reason)].append(f"{Path(source).name} ({name})")
    for kind, modules in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0])):
        yield f"| {len(modules)} | {kind} | {modules[0]} |"


def _kind(reason: str) -> str:
    short = re.sub(r"\s+", " ", _DETAIL.sub("..", reason.split("; ")[0]))
    return re.sub(r"(\.\.[ ,:]?)+", ".. ", short)[:110].replace("|", "/").strip()
