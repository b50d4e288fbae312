"""The JAX corpus and the public modules next to this checkout: read, verified, printed, read again to the same text."""

from __future__ import annotations

from pathlib import Path

import pytest
from same_module import assert_same_module

from spmd.text.parser import parse_module
from spmd.text.printer import print_module
from spmd.text.sources.load import load
from spmd.verifier import verify
from tests.paths import SHARED

#: Files of more bytes repeat layers: they have no opcode, attribute, type or layout that smaller ones have not.
MOST_BYTES = 1 << 20
#: None where ../shared is not there: one skipped test says so.
FILES = [
    path
    for path in [*sorted(SHARED.glob("corpus/*/*.hlo")), *sorted(SHARED.glob("public/*.hlo"))]
    if path.stat().st_size <= MOST_BYTES
]


@pytest.mark.skipif(not FILES, reason="../shared is not here")
@pytest.mark.parametrize("path", FILES or [None], ids=lambda p: p and f"{p.parent.name}-{p.stem}")
def test_read_verify_print_read(path: Path) -> None:
    module = load(path)
    verify(module)
    printed = print_module(module)
    again = parse_module(printed)
    assert print_module(again) == printed
    if module.instruction_count < 1_000:  # larger ones have no syntax that these have not
        assert_same_module(again, module)
        assert_same_module(parse_module(print_module(module, as_dump=True)), module)
