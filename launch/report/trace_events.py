"""The events of a trace that have a duration. The file is not trusted."""

from __future__ import annotations

from collections.abc import Iterator

from spmd.json_fields import JsonFields


def timed_events(trace: JsonFields) -> Iterator[JsonFields]:
    """Yield the events of phase "X". Raises the trace's own error if its list is none, or an event is no object."""
    listed = trace.pop("traceEvents")
    if not isinstance(listed, list):
        raise trace.error(f"{trace.where}: traceEvents must be a list")
    for number, one in enumerate(listed):
        event = trace.inside(one, f"traceEvents[{number}]")
        if event.text("ph") == "X":
            yield event
