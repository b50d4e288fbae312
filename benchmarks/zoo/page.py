"""The table of docs/zoo.md, written again from rows of a run: a line for each program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.zoo.registry import FAMILIES, TENSORFLOW, TORCH
from benchmarks.zoo.results import Row, summary

BEGIN, END = "<!-- table begins -->\n", "<!-- table ends -->\n"


def write_page(path: Path, rows: Sequence[Row]) -> None:
    """Replace what stands between the two marks of the page. ValueError if it lacks them."""
    text = path.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    path.write_text(before + BEGIN + summarized(rows) + table(rows) + END + after)


def summarized(rows: Sequence[Row]) -> str:
    return "\n" + "".join(f"* {line}\n" for line in summary(rows))


def table(rows: Sequence[Row]) -> str:
    """Times of each number of devices, bytes of the largest one."""
    counts = sorted({row.devices for row in rows})
    most = counts[-1]
    titles = ["program", "instructions"]
    titles += [f"{what}, {count}" for what in ("compile s", "step ms") for count in counts]
    titles += [f"sent KB, {most}", f"memory KB, {most}", "outputs", "ranks"]
    lines = ["| " + " | ".join(titles) + " |", "|---|" + "--:|" * (len(titles) - 3) + "---|---|"]
    for family, names in (*FAMILIES, ("TensorFlow", TENSORFLOW), ("PyTorch", TORCH)):
        found = [name for name in names if any(row.program == name for row in rows)]
        if found:
            lines.append(f"| **{family.replace('_', ' ')}**" + " |" * len(titles))
        for name in found:
            own = {row.devices: row for row in rows if row.program == name}
            lines.append("| " + " | ".join(cells(own, counts)) + " |")
    return "\n" + "\n".join(lines) + "\n\n"


def cells(own: dict[int, Row], counts: Sequence[int]) -> Iterator[str]:
    """Cells of a program's line; `own`: its rows by number of devices."""
    largest = own[max(own)]
    yield largest.program
    yield figure(largest, "instructions", 0)
    for count in counts:
        yield beside(own.get(count), "compile_s", "xla_compile_s", 1)
    for count in counts:
        yield beside(own.get(count), "step_ms", "xla_step_ms", 2)
    yield beside(largest, "wire_bytes", "peer_wire_bytes", 1, 1e3)
    yield beside(largest, "memory", "xla_memory", 1, 1e3)
    yield joined({count: row.verdict for count, row in own.items()})
    yield joined({count: row.ranks for count, row in own.items()})


def beside(row: Row | None, mine: str, peer: str, digits: int, unit: float = 1.0) -> str:
    """Return a figure and XLA CPU's."""
    pair = (figure(row, key, digits, unit) for key in (mine, peer))
    return " / ".join(pair).strip(" /")


def figure(row: Row | None, key: str, digits: int, unit: float = 1.0) -> str:
    value = None if row is None else row.figures.get(key)
    return "" if value is None else f"{value / unit:.{digits}f}"


def joined(said: dict[int, str]) -> str:
    """Return what holds for all numbers of devices once, and else each with its number."""
    texts = {count: text.replace("|", "/")[:120] for count, text in said.items()}
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"{count}: {text}" for count, text in texts.items())
