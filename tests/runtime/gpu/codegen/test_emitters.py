"""docs/internals/ptx.md names the kernel records that have a form for a GPU."""

from __future__ import annotations

import re

from runtime.gpu.codegen import ptx_module  # noqa: F401 - it fills the table of emitters
from runtime.gpu.codegen.emitters import EMITTERS
from tests.paths import ROOT

PAGE = ROOT / "docs" / "internals" / "ptx.md"


def test_the_table_has_the_forms_that_there_are() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"\w+Kernel\b", row.split("|")[1])}
    assert named == {kind.__name__ for kind in EMITTERS} | {"ReferenceKernel"}
