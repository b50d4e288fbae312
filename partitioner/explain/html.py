"""Self-contained HTML page of an explanation: no network access, no other files.

Left: the collectives sorted by bytes, and the ops, coloured by sharding. Right: the causes of the selected entry. The
page holds all data as one JSON object; the script builds nodes from text, never from markup.
"""

from __future__ import annotations

import html
import json
from importlib import resources

from partitioner.explain.report import Explanation


def explanation_page(explanation: Explanation) -> str:
    """Return the text of the page."""
    # `</script>` or `<!--` inside a string would end the script.
    data = json.dumps(explanation.as_json(), separators=(",", ":")).replace("<", "\\u003c")
    page = (resources.files("partitioner.explain") / "page.html").read_text(encoding="utf-8")
    title = html.escape(f"{explanation.module} on {explanation.devices} devices")
    assumed = html.escape(str(explanation.links))
    # The data comes last: it may hold any text.
    filled = page.replace("@TITLE@", title).replace("@ASSUMED@", assumed)
    return filled.replace("@DATA@", data)
