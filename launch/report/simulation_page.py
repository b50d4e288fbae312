"""A simulation as one self-contained HTML page: no network, no files beside it.

It shows what the step consists of as a waterfall, what each link hides, and the exposed collectives in a sortable
table.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from importlib import resources

from collectives.simulate.reasons import brief
from collectives.simulate.result import CollectiveResult, ResourceUse, Simulation
from collectives.simulate.waterfall import Waterfall
from launch.report.figures import percent, size_text
from launch.report.simulation import PART_NAMES, fits, hidden_part, parts_of, whose_step
from spmd.machine.description import MachineDescription

#: Part of the waterfall that no machine avoids.
_WORK = "arithmetic"
#: Largest number of collectives in the table.
_MOST_ROWS = 2_000


def simulation_page(
    found: Simulation, machine: MachineDescription, parts: Waterfall | None = None
) -> str:
    """Return the text of the page. ``parts`` is what the step consists of; None for a page without a waterfall."""
    page = (resources.files("launch.report") / "simulation_page.html").read_text(encoding="utf-8")
    texts = {
        "TITLE": html.escape(f"{found.module}: a step on {machine.name}"),
        "SUBTITLE": html.escape(f"{found.devices} devices; {whose_step(found)}"),
        "FIGURES": "".join(_figures(found, machine)),
        "PARTS": _waterfall(found, parts) if parts else "",
        "LINKS": _links(found.resources),
        "COLLECTIVES": _collectives(found.collectives),
        "NOTES": _notes(found.notes),
    }
    # In one pass, since names in the texts may be anything.
    return re.sub(r"@([A-Z]+)@", lambda match: texts[match[1]], page)


def _figures(found: Simulation, machine: MachineDescription) -> Iterator[str]:
    """Yield the figures at the top of the page, each with a remark."""
    between = ""
    if found.step_range is not None:
        best, worst = brief(found.step_range.best), brief(found.step_range.worst)
        between = f"{best} with equal devices, {worst} at most on 95 % of machines"
    yield _figure("step", brief(found.seconds), between)
    yield _figure("compute", brief(found.compute), percent(found.compute, found.seconds))
    yield _figure("slowed", brief(found.slowed), percent(found.slowed, found.seconds))
    yield _figure("exposed", brief(found.exposed), percent(found.exposed, found.seconds))
    share = f"{percent(found.communication, found.seconds)}{hidden_part(found)}"
    yield _figure("communication", brief(found.communication), share)
    yield _figure("lower bound", brief(found.bound.seconds), found.bound.what)
    least = found.least
    if least is not None and least.hideable:
        hidden = least.hidden(found.seconds)
        remark = f"{brief(hidden)} of {brief(least.hideable)} that could be"
        yield _figure("hidden", percent(hidden, least.hideable), remark)
    limit = size_text(machine.memory_limit)
    excess = "" if fits(found, machine) else ": does not fit"
    yield _figure("peak memory", size_text(found.peak_bytes), f"of {limit}{excess}")


def _figure(name: str, value: str, remark: str) -> str:
    small = f"<small>{html.escape(remark)}</small>" if remark else ""
    return f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}{small}</dd></div>"


def _waterfall(found: Simulation, parts: Waterfall) -> str:
    """Return the waterfall: each part begins where those above it end."""
    rows = []
    begin = 0.0
    total = max(found.seconds, 1e-30)
    for name, seconds in parts_of(parts):
        length = max(seconds, 0.0)
        kind = "work" if name == _WORK else "loss"
        rows.append(_bar(PART_NAMES[name], length, found.seconds, begin / total, kind))
        begin += length
    rows.append(_bar("step", found.seconds, found.seconds, 0.0, "sum"))
    return f'<h2>What the step consists of</h2><div class="fall">{"".join(rows)}</div>'


def _bar(name: str, seconds: float, total: float, begin: float, kind: str) -> str:
    left, width = 100 * min(begin, 1.0), 100 * min(seconds / total if total else 0.0, 1.0)
    return (
        f'<span>{html.escape(name)}</span><span class="time">{brief(seconds)}</span>'
        f'<span class="share">{percent(seconds, total)}</span>'
        f'<span class="track"><i class="{kind}" style="left:{left:.3f}%;width:{width:.3f}%"></i></span>'
    )


def _links(links: Sequence[ResourceUse]) -> str:
    if not links:
        return ""
    rows = [
        _row(
            _cell(one.name),
            *(_number(brief(value), value) for value in (one.busy, one.hideable, one.hidden)),
            _number(percent(one.hidden, one.hideable) if one.hideable else "-", one.share or 0.0),
        )
        for one in links
    ]
    heads = (("link", ""), *((name, "number") for name in ("busy", "hideable", "hidden", "share")))
    return f"<h2>Links</h2>{_table(heads, rows)}"


def _collectives(collectives: Sequence[CollectiveResult]) -> str:
    exposed = sorted((one for one in collectives if one.exposed), key=lambda one: -one.exposed)
    if not collectives:
        return ""
    title = f"Collectives: {len(collectives)}, {len(collectives) - len(exposed)} hidden"
    if not exposed:
        return f"<h2>{title}</h2>"
    shown = exposed[:_MOST_ROWS]
    more = "" if len(shown) == len(exposed) else f", the longest {len(shown):,} of {len(exposed):,}"
    rows = [
        _row(
            _cell(one.name, "name"),
            _cell(one.kind),
            _number(size_text(one.bytes), one.bytes),
            _number(f"{one.group_size:,}", one.group_size),
            _number(f"{one.executions:,}", one.executions),
            _number(brief(one.seconds), one.seconds),
            _number(brief(one.exposed), one.exposed),
            _cell(one.why, "why"),
        )
        for one in shown
    ]
    numbers = ((name, "number") for name in ("bytes", "group", "times", "time", "exposed"))
    heads = (("op", ""), ("kind", ""), *numbers, ("why it is exposed", ""))
    return f"<h2>{title}; exposed ones{more}</h2>{_table(heads, rows)}"


def _notes(notes: Sequence[str]) -> str:
    return "".join(f"<p>Note: {html.escape(note)}</p>" for note in notes)


def _table(heads: Sequence[tuple[str, str]], rows: Sequence[str]) -> str:
    """Return a table; ``heads`` are titles and classes of columns."""
    titles = "".join(f'<th class="{kind}">{html.escape(name)}</th>' for name, kind in heads)
    return (
        f'<div class="scroll"><table><thead><tr>{titles}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _row(*cells: str) -> str:
    return f"<tr>{''.join(cells)}</tr>"


def _cell(text: str, kind: str = "") -> str:
    return f'<td class="{kind}">{html.escape(text)}</td>'


def _number(text: str, value: float) -> str:
    """Return a cell that is sorted by ``value``."""
    return f'<td class="number" data-value="{value!r}">{html.escape(text)}</td>'
