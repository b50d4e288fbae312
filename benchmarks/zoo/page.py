"""The table of docs/zoo.md, written again from rows of a run."""

from __future__ import annotations

from pathlib import Path

from benchmarks.zoo.registry import FAMILIES
from benchmarks.zoo.results import Row

BEGIN, END = "<!-- table begins -->\n", "<!-- table ends -->\n"


def write_page(path: Path, rows: list[Row]) -> None:
    """Replace what stands between the two marks of the page. ValueError if it lacks them."""
    text = path.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    path.write_text(before + BEGIN + table(rows) + END + after)


def table(rows: list[Row]) -> str:
    titles = ["program", "devices", "instructions", "compile s", "XLA", "step ms", "XLA"]
    titles += ["sent KB", "XLA", "memory KB", "XLA", "outputs"]
    lines = ["| " + " | ".join(titles) + " |", "|---|" + "--:|" * (len(titles) - 2) + "---|"]
    for family, names in FAMILIES:
        found = [row for row in rows if row.program in names]
        if found:
            lines.append(f"| **{family.replace('_', ' ')}** | | | | | | | | | | | |")
        lines += [line_of(row) for row in found]
    return "\n" + "\n".join(lines) + "\n\n"


def line_of(row: Row) -> str:
    def figure(key: str, digits: int, unit: float = 1.0) -> str:
        value = row.figures.get(key)
        return "" if value is None else f"{value / unit:.{digits}f}"

    columns = [
        row.program,
        str(row.devices),
        figure("instructions", 0),
        figure("compile_s", 1),
        figure("xla_compile_s", 1),
        figure("step_ms", 2),
        figure("xla_step_ms", 2),
        figure("wire_bytes", 1, 1e3),
        figure("peer_wire_bytes", 1, 1e3),
        figure("memory", 1, 1e3),
        figure("xla_memory", 1, 1e3),
        row.verdict.replace("|", "/")[:100] + (f" ({row.loose} loose)" if row.loose else ""),
    ]
    return "| " + " | ".join(columns) + " |"
