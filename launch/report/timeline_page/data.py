"""Data of the page as small JSON: texts once in a table, sequences of instructions once, times as nanoseconds.

A step runs the same instructions on most devices and in most steps, so a run of slices names its sequence and its
references and has only times of its own: beginnings as differences, durations. ``document.js`` reads it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from launch.report.overlap.model import (
    AsyncInterval,
    CollectiveOverlap,
    DeviceOverlap,
    DeviceStep,
    Instruction,
    MeasuredStep,
    OverlapReport,
    PathPiece,
    Site,
    Slice,
)
from launch.report.timeline_page.kinds import PALETTES, PageKind, kind_of_collective, kind_of_slice
from launch.report.timeline_page.numbers import step_numbers
from launch.report.timeline_page.table import Table
from spmd.hlo import HloInstruction, HloModule
from spmd.text.printer import print_instruction

#: Largest number of slices on a page; steps beyond it are omitted.
MOST_SLICES = 400_000

#: Largest number of characters of an instruction's text, because replica groups and constants can be long.
MOST_TEXT = 3000

_KINDS = list(PageKind)


def page_data(report: OverlapReport, module: HloModule | None) -> dict[str, Any]:
    """Return the page's data of a report. module: as it ran; without it there are no texts of instructions."""
    steps = _shown_steps(report)
    left_out = len(report.run.steps) - len(steps)
    few = (
        [f"{left_out} steps are left out, because the page would be too large."] if left_out else []
    )
    return _Writer(report, module, steps).write([*report.notes, *few])


def _shown_steps(report: OverlapReport) -> list[MeasuredStep]:
    """Return as many steps as MOST_SLICES allows, in order of time: the displayed one has precedence, then the steps of
    the figures.
    """
    typical = {*report.typical, *report.typical_reference}
    ranked = sorted(
        report.run.steps,
        key=lambda step: (step.number != report.shown, step.number not in typical, step.number),
    )
    chosen: list[MeasuredStep] = []
    count = 0
    for step in ranked:
        count += sum(len(device.slices) for device in step.devices)
        if not chosen or count <= MOST_SLICES:
            chosen.append(step)
    return sorted(chosen, key=lambda step: step.begin)


class _Writer:
    """One page's tables, filled while its parts are written."""

    def __init__(
        self, report: OverlapReport, module: HloModule | None, steps: Sequence[MeasuredStep]
    ) -> None:
        self._report, self._steps = report, steps
        self._hlo = {} if module is None else {i.name: i for i in module.all_instructions()}
        self._first = min((step.begin for step in steps), default=0.0)
        self._strings: Table[str] = Table()
        self._sites = {name: n for n, name in enumerate(report.run.sites)}
        self._instructions: Table[tuple[str, PageKind, int]] = Table()
        self._bytes: list[int] = []
        self._sequences: Table[tuple[tuple[int, int], ...]] = Table()
        self._references: Table[tuple[int | None, ...]] = Table()
        self._groups: Table[tuple[int, ...]] = Table()

    def write(self, notes: Iterable[str]) -> dict[str, Any]:
        report = self._report
        parts = {
            "runs": [
                self._run(number, device)
                for number, step in enumerate(self._steps)
                for device in step.devices
            ],
            "flights": [
                self._async_interval(number, async_interval)
                for number, step in enumerate(self._steps)
                for device in step.devices
                for async_interval in device.async_intervals
            ],
            "path": [self._piece(piece) for piece in report.path],
            "collectives": [self._collective(one) for one in report.collectives],
        }
        tables = {
            "instructions": self._columns(),
            "sites": [self._site(site) for site in report.run.sites.values()],
            "sequences": [
                {"instruction": [i for i, _ in row], "depth": [depth for _, depth in row]}
                for row in self._sequences.rows
            ],
            "references": [list(row) for row in self._references.rows],
            "groups": [list(row) for row in self._groups.rows],
        }
        return {
            "kinds": [_kind(kind) for kind in _KINDS],
            "devices": [f"device {number}" for number in range(report.run.devices)],
            "steps": [self._step(step) for step in self._steps],
            "shown": next(
                (n for n, step in enumerate(self._steps) if step.number == report.shown), 0
            ),
            "numbers": [
                [one.name, nanoseconds(one.seconds), nanoseconds(one.total), one.hint]
                for one in step_numbers(report)
            ],
            "figures": [self._device(one) for one in report.devices],
            "notes": list(notes),
            **parts,
            **tables,
            "strings": self._strings.rows,  # last: the other parts have added their texts
        }

    # ---- times
    def _at(self, seconds: float) -> int:
        """Return nanoseconds from the page's first event."""
        return round(1e9 * (seconds - self._first))

    def _step(self, step: MeasuredStep) -> dict[str, Any]:
        return {
            "number": step.number,
            "blocking": step.blocking,
            "start": self._at(step.begin),
            "end": self._at(step.end),
        }

    def _run(self, number: int, device: DeviceStep) -> dict[str, Any]:
        slices = list(_nested(device.slices, self._report.run.sites.keys()))
        starts = [self._at(one.start) for one, _ in slices]
        begin = starts[0] if starts else 0
        sequence = tuple((self._instruction(one), depth) for one, depth in slices)
        references = tuple(nanoseconds(one.reference) for one, _ in slices)
        return {
            "device": device.device,
            "step": number,
            "sequence": self._sequences.add(sequence),
            "references": self._references.add(references),
            "start": begin,
            "at": [at - before for at, before in zip(starts, [begin, *starts[:-1]], strict=True)]
            if starts
            else [],
            "took": [
                self._at(one.end) - start for (one, _), start in zip(slices, starts, strict=True)
            ],
        }

    def _async_interval(self, number: int, async_interval: AsyncInterval) -> list[Any]:
        """Return the fields in the order of document.js's FLIGHT_FIELDS; times after ``issued`` are relative to it."""
        issued = self._at(async_interval.issued)
        later = (
            async_interval.issue_end,
            async_interval.arrived,
            async_interval.landed,
            async_interval.wait_begin,
            async_interval.wait_end,
        )
        return [
            self._collective_number(async_interval.name),
            async_interval.device,
            number,
            async_interval.execution,
            self._groups.add(async_interval.members),
            async_interval.last,
            issued,
            *(self._at(time) - issued for time in later),
            nanoseconds(async_interval.hidden),
            nanoseconds(async_interval.slowed),
            [
                [self._strings.add(reason.value), nanoseconds(s)]
                for reason, s in async_interval.parts
            ],
            self._strings.add(async_interval.why),
        ]

    def _piece(self, piece: PathPiece) -> dict[str, Any]:
        return {
            "device": piece.device,
            "kind": piece.kind,
            "name": piece.name,
            "start": self._at(piece.start),
            "end": self._at(piece.end),
        }

    # ---- texts of the program
    def _instruction(self, one: Slice) -> int:
        said = self._report.run.instructions.get(one.name, Instruction(one.name))
        site = self._report.run.sites.get(one.name)
        kind = kind_of_slice(
            one.kind, said, None if site is None else site.kind, self._hlo.get(one.name)
        )
        number = self._add(one.name, kind)
        self._bytes[number] = max(self._bytes[number], one.bytes)
        return number

    def _collective_number(self, name: str) -> int:
        return self._add(name, kind_of_collective(self._report.run.sites[name].kind))

    def _add(self, name: str, kind: PageKind) -> int:
        number = self._instructions.add((name, kind, self._sites.get(name, -1)))
        if number == len(self._bytes):
            self._bytes.append(0)
        return number

    def _columns(self) -> dict[str, Any]:
        rows = self._instructions.rows
        said = [self._report.run.instructions.get(name, Instruction(name)) for name, _, _ in rows]
        text = self._strings.add
        kernels = (self._report.run.predicted or {}).get("kernels", {})
        return {
            "name": [text(one.name) for one in said],
            "opcode": [text(one.opcode) for one in said],
            "opName": [text(one.op_name) for one in said],
            "source": [text(one.source) for one in said],
            "text": [text(_hlo_text(self._hlo.get(one.name))) for one in said],
            "kind": [_KINDS.index(kind) for _, kind, _ in rows],
            "site": [site for _, _, site in rows],
            "bytes": self._bytes,
            "predicted": [nanoseconds(kernels.get(one.name)) for one in said],
        }

    def _site(self, site: Site) -> dict[str, Any]:
        return {
            "bytes": site.bytes,
            "pairs": [list(pair) for pair in site.pairs],
            "exchanges": list(site.exchanges),
        }

    def _collective(self, one: CollectiveOverlap) -> dict[str, Any]:
        """Return a row of the page's table."""
        site = one.site
        return {
            "instruction": self._collective_number(site.name),
            "name": site.name,
            "kindName": site.kind,
            "bytes": site.bytes,
            "group": site.group_size,
            "executions": one.executions,
            "seconds": nanoseconds(one.seconds),
            "alone": nanoseconds(one.alone),
            "exposed": nanoseconds(one.exposed),
            "referenceExposed": nanoseconds(one.reference_exposed),
            "hidden": nanoseconds(one.hidden),
            "slowed": nanoseconds(one.slowed),
            "effective": nanoseconds(one.effective),
            "why": one.why,
            "predicted": nanoseconds(one.predicted),
            "predictedExposed": nanoseconds(one.predicted_exposed),
            "predictedWhy": one.predicted_why,
        }

    def _device(self, one: DeviceOverlap) -> dict[str, Any]:
        return {
            "device": one.device,
            "seconds": nanoseconds(one.seconds),
            "compute": nanoseconds(one.compute - one.slowed),
            "slowed": nanoseconds(one.slowed),
            "exposed": nanoseconds(one.exposed),
            "awaited": nanoseconds(one.awaited),
            "stolen": nanoseconds(one.stolen),
            "clock": nanoseconds(self._report.run.clock_uncertainty[one.device]),
        }


def nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(1e9 * seconds)


def _nested(slices: Sequence[Slice], collectives: Iterable[str]) -> Iterator[tuple[Slice, int]]:
    """Yield slices with their depth, without redundant ones: those around a blocking collective's start and done, and
    the one around the entire step.
    """
    named = frozenset(collectives)
    end = max((one.end for one in slices), default=0.0)
    around: list[int] = []  # nesting depths of the slices
    for one in slices:
        while around and around[-1] >= one.depth:
            around.pop()
        total = one.depth == 0 and one.end >= end
        if one.kind == "ThunkSequence" and (total or one.name in named):
            continue
        yield one, len(around)
        around.append(one.depth)


def _kind(kind: PageKind) -> dict[str, Any]:
    palette = PALETTES[kind]
    waiting = kind is PageKind.WAITING
    return {"name": kind.value, "light": palette.light, "dark": palette.dark, "waiting": waiting}


def _hlo_text(instruction: HloInstruction | None) -> str:
    text = "" if instruction is None else print_instruction(instruction)
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
