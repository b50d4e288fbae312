"""The timeline of a measured run as one self-contained HTML page: no network, no files beside it.

All data stands in the page as one JSON object; the scripts draw on canvases and write names as text, never as markup.
"""

from __future__ import annotations

import html
import json
import re
from importlib import resources

from launch.report.overlap.model import OverlapReport
from launch.report.timeline_page.data import page_data
from spmd.hlo import HloModule

#: Parts of the script, in the order of their dependencies.
SCRIPTS = (
    "format",
    "lanes",
    "document",
    "layout",
    "search",
    "paint",
    "overview",
    "panel",
    "tables",
    "input",
    "page",
)

_PACKAGE = "launch.report.timeline_page"


def timeline_page(report: OverlapReport, module: HloModule | None = None) -> str:
    """Return the page's text. ``module``: as it ran, for the texts of its instructions, which are else missing."""
    # `</script>` or `<!--` inside a string would end the script.
    data = json.dumps(page_data(report, module), separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "STYLE": _part("page.css"),
        "SCRIPT": "\n".join(_part(f"{name}.js") for name in SCRIPTS),
        "TITLE": html.escape(f"{report.run.module} on {report.run.devices} devices"),
        "SUBTITLE": html.escape(_subtitle(report)),
        "DATA": data,
    }
    # Replace all parts at once, because a part may contain the name of another one.
    return re.sub(f"@({'|'.join(parts)})@", lambda found: parts[found[1]], _part("page.html"))


def _subtitle(report: OverlapReport) -> str:
    blocking = sum(step.blocking for step in report.run.steps)
    scheduled = len(report.run.steps) - blocking
    suffix = f" and {blocking} reference steps" if blocking else ""
    machine = f"; compiled for {report.run.machine}" if report.run.machine else ""
    return f"{scheduled} steps as scheduled{suffix}{machine}"


def _part(name: str) -> str:
    return (resources.files(_PACKAGE) / name).read_text(encoding="utf-8").rstrip("\n")
