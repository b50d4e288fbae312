"""The page's script, as far as it needs no browser, run by Node on the data that a page holds."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from launch.report.timeline_page.data import page_data
from launch.report.timeline_page.page import SCRIPTS
from tests.launch.report.timeline_page.reports import report

NODE = shutil.which("node")
CHECKS = sorted(Path(__file__).parent.glob("check_*.js"))

pytestmark = pytest.mark.skipif(NODE is None, reason="no Node to run the page's script with")


def script(*names: str) -> str:
    folder = resources.files("launch.report.timeline_page")
    return "\n".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in names)


def run(program: str, *options: str) -> None:
    assert NODE is not None
    done = subprocess.run(
        [NODE, *options, "-"],
        input=program,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_whole_script_can_be_read() -> None:
    run('"use strict";\n' + script(*SCRIPTS), "--check")


@pytest.mark.parametrize("check", CHECKS, ids=lambda path: path.stem)
def test_parts_do_what_they_say(check: Path) -> None:
    data = json.dumps(page_data(report(), None))
    pure = script("format", "lanes", "document", "layout", "search")
    head = '"use strict";\nconst assert = require("node:assert");\n'
    run(f"{head}{pure}\nconst raw = {data};\n{check.read_text(encoding='utf-8')}")
