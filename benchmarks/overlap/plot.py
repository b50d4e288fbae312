"""Pictures of a good and a bad schedule of one program: its timeline's page, in a browser, over a shaped link.

python -m benchmarks.overlap.plot docs/images            overlap_good.png and overlap_bad.png
python -m benchmarks.overlap.plot --page F.html F.png    one of a page that `spmd profile --html` wrote

Good: as it is compiled for the link, as `spmd calibrate` finds it. Bad: `--without latency-hiding`. Each is run by
`spmd profile` on two hosts of one machine (benchmarks/two_hosts); the picture shows the step of median length with the
collective selected that is hidden longest, or exposed longest where none is hidden. Needs Chromium, and what two hosts
need. --first lets the runs go before others on the machine (needs the right to).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.overlap.planted_modules import independent
from benchmarks.timing.first import FIRST

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SCHEDULES = {"overlap_good": (), "overlap_bad": ("--without", "latency-hiding")}
SIZE = (1400, 640)

#: Milliseconds of its own time that the browser gives the page to draw itself.
_PATIENCE = 3000


def on_hosts(options: argparse.Namespace, *command: str) -> None:
    """A command of spmd on two hosts; what it says goes to standard output."""
    hosts = ("-m", "benchmarks.two_hosts", "--rate", options.rate, "--delay", options.delay)
    before = FIRST if options.first else ()  # of each rank: a rank is a session of its own
    ranks = (sys.executable, *hosts, "--", *before, "spmd", *command)
    subprocess.run(ranks, check=True, timeout=300)


def page_data(page: Path) -> dict[str, Any]:
    text = page.read_text(encoding="utf-8")
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)
    assert found is not None, f"{page}: not a timeline's page"
    data: dict[str, Any] = json.loads(found[1])
    return data


def place(data: dict[str, Any], theme: str) -> str:
    """Return the query of a page's address that shows the whole step, with one collective selected."""
    step = data["steps"][data["shown"]]
    chosen = max(data["collectives"], key=lambda row: (row["hidden"], row["exposed"]))
    beside = (step["end"] - step["start"]) // 100
    shown = {"from": -beside, "to": step["end"] - step["start"] + beside}
    return urlencode({"theme": theme, "select": chosen["name"], **shown})


def picture(page: Path, target: Path, theme: str, browser: str) -> None:
    width, height = SIZE
    options = [
        "--headless",
        "--hide-scrollbars",
        "--force-device-scale-factor=1",
        f"--window-size={width},{height}",
        f"--virtual-time-budget={_PATIENCE}",
        # The page is our own, and a container's root may not make a sandbox.
        "--no-sandbox",
        f"--screenshot={target.resolve()}",
    ]
    address = f"{page.resolve().as_uri()}#{place(page_data(page), theme)}"
    subprocess.run([browser, *options, address], check=True, timeout=120, capture_output=True)


def main() -> None:
    options = _parsed()
    browser = options.browser or next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"none of {', '.join(BROWSERS)} is here; --browser names another")
    if options.page is not None:
        picture(options.page, options.target, options.theme, browser)
        return
    with tempfile.TemporaryDirectory() as folder:
        machine, page = Path(folder) / "link.json", Path(folder) / "page.html"
        module = options.module or Path(folder) / "independent.hlo"
        if options.module is None:
            module.write_text(independent(48, 1, 2048), encoding="utf-8")
        on_hosts(options, "calibrate", "-o", str(machine))
        for name, without in SCHEDULES.items():
            compiled = (str(module), "--machine", str(machine), *without)
            on_hosts(options, "profile", *compiled, "--steps", "8", "--html", str(page))
            picture(page, options.target / f"{name}.png", options.theme, browser)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", type=Path, help="a folder; with --page a file")
    parser.add_argument("--page", type=Path, metavar="F.html", help="its picture; nothing is run")
    parser.add_argument(
        "--module", type=Path, help="default: 48 products beside a reduction of 4 MB"
    )
    parser.add_argument("--rate", default="1gbit", help="of the link (default: %(default)s)")
    parser.add_argument("--delay", default="0.2ms", help="each way (default: %(default)s)")
    parser.add_argument("--first", action="store_true", help="before all others on this machine")
    parser.add_argument("--theme", choices=("light", "dark"), default="light")
    parser.add_argument("--browser", metavar="COMMAND")
    return parser.parse_args()


if __name__ == "__main__":
    main()
