"""XLA reads what we write as the program that it reads from the text, and we read what XLA writes (`jax` extra)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import spmd
from spmd.analysis.structure import StructuralKeys
from spmd.proto import parse_proto, serialize
from tests.spmd.proto.examples import TEXTS

pytest.importorskip("jaxlib", reason="XLA's reader comes with the jax extra")

CASES = sorted((Path(__file__).parents[2] / "cases").glob("*/*.hlo"))
ALL = {f"{path.parent.name}-{path.stem}": path.read_text() for path in CASES} | TEXTS
#: The proto has no configuration, and XLA takes the counts from elsewhere.
_CONFIGURATION = re.compile(
    r", (?:num_partitions|replica_count)=\d+|, allow_spmd_sharding_propagation_to_\w+=\{[^}]*\}"
)
#: XLA's text reader drops the sign of a zero; the proto keeps it.
_ZERO = re.compile(r"-0(?![\d.])")


def plain(text: str) -> str:
    return _ZERO.sub("0", _CONFIGURATION.sub("", text))


@pytest.mark.parametrize("name", ALL)
def test_xla_reads_our_proto_as_it_reads_the_text(name: str) -> None:
    from jaxlib import _hlo

    data = serialize(spmd.parse(ALL[name], name))
    ours = _hlo.HloModule.from_serialized_hlo_module_proto(data).to_string()
    assert plain(ours) == plain(_hlo.hlo_module_from_text(ALL[name]).to_string())


@pytest.mark.parametrize("name", [name for name in ALL if name != "literals"])
def test_we_read_xlas_proto_as_we_read_its_text(name: str) -> None:
    """``literals`` holds a tuple constant, which XLA prints in a form that no parser takes."""
    from jaxlib import _hlo

    module = _hlo.hlo_module_from_text(ALL[name])
    ours = parse_proto(module.as_serialized_hlo_module_proto(), name)
    theirs = spmd.parse(module.to_string(), name)
    keys = StructuralKeys()
    assert keys.key(ours.entry) == keys.key(theirs.entry)
    assert ours.entry_layout == theirs.entry_layout
    assert ours.stage == theirs.stage
