"""The events of a trace that have a duration, from a file that may be anybody's."""

from __future__ import annotations

from collections.abc import Iterator

from spmd.json_fields import JsonFields


def timed_events(trace: JsonFields) -> Iterator[JsonFields]:
    """Those of phase "X", as they stand there; the trace's own error where its list is none, or an event no object."""
    listed = trace.pop("traceEvents")
    if not isinstance(listed, list):
        raise trace.error(f"{trace.where}: traceEvents must be a list")
    for number, one in enumerate(listed):
        event = trace.inside(one, f"traceEvents[{number}]")
        if event.text("ph") == "X":
            yield event
