"""The overlap report on a terminal, in the form of `spmd simulate`'s."""

from __future__ import annotations

from collections.abc import Iterator

from collectives.simulate.reasons import brief
from launch.ranks.messages import printable_lines
from launch.report.figures import bar, percent, size_text
from launch.report.overlap.model import CollectiveOverlap, OverlapReport
from launch.report.overlap.path_shares import path_shares

_PATH_ROWS = 8
#: Least fraction of the exposed time for which a reason is listed.
_LISTED = 0.01


def format_report(report: OverlapReport, most: int) -> str:
    """Return the report's text, with the ``most`` collectives that are exposed, or slow kernels down, longest."""
    return printable_lines(
        [
            *_head(report),
            "",
            *_step(report),
            "",
            *_devices(report),
            *_collectives(report, most),
            "",
            *_path(report),
            *(f"note: {note}" for note in report.notes),
        ]
    )


def _head(report: OverlapReport) -> Iterator[str]:
    run = report.run
    on = f", compiled for {run.machine}" if run.machine else ""
    yield f"{run.module} on {run.devices} devices{on}"
    scheduled = sum(not step.blocking for step in run.steps)
    yield (
        f"means over devices and {_some(len(report.typical), scheduled)} steps and "
        f"{_some(len(report.typical_reference), len(run.steps) - scheduled)} reference steps, which wait for every "
        "collective where it starts"
    )


def _some(chosen: int, count: int) -> str:
    return f"the middle {chosen} of {count}" if chosen < count else f"{count}"


def _step(report: OverlapReport) -> Iterator[str]:
    step_seconds = report.seconds
    predicted = report.run.predicted or {}
    before = f"{'predicted':>9}" if predicted else ""
    yield f"  {'':<14} {'measured':>9} {before}"
    reference = report.reference_seconds
    if reference is not None:
        yield f"  {'reference step':<14} {brief(reference):>9}"
    for name, seconds, key in (
        ("step", step_seconds, "step_s"),
        ("compute", report.compute - report.slowed, "compute_s"),
        ("slowed", report.slowed, "slowed_s"),
        ("exposed", report.exposed, "exposed_s"),
        ("other", report.other, ""),
    ):
        column = f"{brief(predicted[key]):>9}" if key in predicted else " " * 9 * bool(predicted)
        drawn = (
            ""
            if name == "step"
            else f"  {bar(seconds, step_seconds)} {percent(seconds, step_seconds)}"
        )
        yield f"  {name:<14} {brief(seconds):>9} {column}{drawn}".rstrip()
    total = sum(one.seconds for one in report.collectives)
    yield f"  {'communication':<14} {brief(total):>9}   of which hidden {brief(report.hidden)}"
    gained = ""
    if reference is not None:
        gained = (
            f"   reference step - step = {brief(reference - step_seconds)}, of which {brief(report.elsewhere)} "
            "is not due to collectives"
        )
    yield f"  {'effective':<14} {brief(report.effective):>9}{gained}"


def _devices(report: OverlapReport) -> Iterator[str]:
    stolen = any(one.stolen is not None for one in report.devices)
    yield (
        f"  {'device':>6} {'step':>9} {'compute':>9} {'slowed':>9} {'exposed':>9} {'awaited':>9}"
        + (f" {'no core':>9}" if stolen else "")
    )
    for one in report.devices:
        figures = [one.seconds, one.compute - one.slowed, one.slowed, one.exposed, one.awaited]
        figures += [one.stolen or 0.0] if stolen else []
        yield f"  {one.device:>6} " + " ".join(f"{brief(seconds):>9}" for seconds in figures)
    yield ""


def _collectives(report: OverlapReport, most: int) -> Iterator[str]:
    listed = sorted(report.collectives, key=lambda one: -(one.exposed + max(one.slowed, 0.0)))
    count = len(listed)
    if not count:
        yield "no collectives"
        return
    shown = listed[:most]
    yield f"{count} collective{'s' if count > 1 else ''}" + (
        f"; the {len(shown)} most expensive:"
        if len(shown) < count
        else ", the most expensive first:"
    )
    width = max(len(one.site.name) for one in shown)
    predicted = any(one.predicted is not None for one in shown)
    yield (
        f"  {'op':<{width}} {'kind':<18} {'bytes':>9} {'times':>5} {'time':>9} {'alone':>9} {'hidden':>9} "
        f"{'exposed':>9} {'slowed':>9} {'effective':>9}"
        + ("  predicted exposed" if predicted else "")
    )
    for one in shown:
        yield from _collective(one, width)


def _collective(one: CollectiveOverlap, width: int) -> Iterator[str]:
    figures = (one.seconds, one.alone, one.hidden, one.exposed, one.slowed, one.effective)
    column = ""
    if one.predicted is not None and one.predicted_exposed is not None:
        column = f"  {brief(one.predicted):>9} {brief(one.predicted_exposed):>7}"
    yield (
        f"  {one.site.name:<{width}} {one.site.kind:<18} {size_text(one.site.bytes):>9} {one.executions:>5.3g} "
        + " ".join(f"{brief(seconds):>9}" for seconds in figures)
        + column
    )
    if one.why:
        yield f"  {'':<{width}} {one.why}"
    parts = [
        (reason.value, seconds) for reason, seconds in one.parts if seconds > _LISTED * one.exposed
    ]
    if len(parts) > 1 or any(not one.why.startswith(reason) for reason, _ in parts):
        column = ", ".join(f"{reason} {brief(seconds)}" for reason, seconds in parts)
        yield f"  {'':<{width}} exposed: {column}"
    if one.predicted_why:
        yield f"  {'':<{width}} predicted: {one.predicted_why}"


def _path(report: OverlapReport) -> Iterator[str]:
    shares = path_shares(report)
    step_seconds = sum(one.seconds for one in shares)
    turns = sum(
        before.device != after.device
        for before, after in zip(report.path, report.path[1:], strict=False)
    )
    yield (
        f"critical path of step {report.shown}: {brief(step_seconds)}, {len(report.path)} pieces, "
        f"changes devices {turns} times"
    )
    for one in shares[:_PATH_ROWS]:
        is_start = one.kind == "compute" and one.names[0] in report.run.sites
        kind = "start of" if is_start else one.kind
        what = one.opcode if kind == "compute" else f"{kind} {one.opcode}".rstrip()
        names = one.names[0] + (f" and {len(one.names) - 1} more" if len(one.names) > 1 else "")
        yield (
            f"  {what:<28} {brief(one.seconds):>9} {bar(one.seconds, step_seconds, 20)} "
            f"{percent(one.seconds, step_seconds):>6}  "
            f"{names}  {one.source}".rstrip()
        )
    if len(shares) > _PATH_ROWS:
        rest = sum(one.seconds for one in shares[_PATH_ROWS:])
        yield f"  {'the rest':<28} {brief(rest):>9} {bar(rest, step_seconds, 20)} {percent(rest, step_seconds):>6}"
