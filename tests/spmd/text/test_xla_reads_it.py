"""XLA's own parser reads what we print (needs the `jax` extra)."""

from __future__ import annotations

from pathlib import Path

import pytest

import spmd
from spmd.text.printer import print_module
from tests.paths import CASES

pytest.importorskip("jaxlib", reason="XLA's parser comes with the jax extra")


@pytest.mark.parametrize("as_dump", [False, True], ids=["jax", "dump"])
@pytest.mark.parametrize(
    "path", sorted(CASES.glob("*/*.hlo")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_xla_reads_our_text_as_it_reads_the_original(path: Path, as_dump: bool) -> None:
    from jaxlib import _hlo

    original = _hlo.hlo_module_from_text(path.read_text()).to_string()
    printed = print_module(spmd.load(path), as_dump=as_dump)
    assert _hlo.hlo_module_from_text(printed).to_string() == original
