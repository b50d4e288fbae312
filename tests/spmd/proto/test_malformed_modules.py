"""Files that hold no module, or half of one: each is an error that names the file, and soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import spmd
from spmd.errors import HloParseError, SpmdError
from spmd.proto.reader import parse_proto
from spmd.proto.schema.hlo import (
    HloModuleProto,
    HloProto,
)
from spmd.proto.writer import serialize, serialize_hlo_proto
from spmd.text.parser import parse_module
from spmd.text.sources.load import parse_bytes
from tests.spmd.proto.examples import example
from tests.spmd.proto.mutate import LIMIT, carry, mutations, originals
from tests.spmd.proto.test_malformed import TEXT


def _module(change: Callable[[HloModuleProto], None]) -> bytes:
    proto = HloModuleProto(serialize(parse_module(TEXT)))
    change(proto)
    return bytes(proto)


def _no_entry(proto: HloModuleProto) -> None:
    proto.entry_computation_id, proto.entry_computation_name = 5, ""


def _two_ids(proto: HloModuleProto) -> None:
    proto.computations = [*proto.computations, *proto.computations]


def _unnamed(proto: HloModuleProto) -> None:
    proto.name = ""


def _empty(proto: HloModuleProto) -> None:
    proto.computations = []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_no_entry, "the module has no entry computation 5"),
        (_two_ids, "two computations have the id 1"),
        (_unnamed, "the module has no name"),
        (_empty, "it has no computations"),
    ],
)
def test_module_errors(change: Callable[[HloModuleProto], None], reason: str) -> None:
    with pytest.raises(HloParseError, match=rf"^file\.pb: .*{reason}"):
        parse_proto(_module(change), "file.pb")


@pytest.mark.parametrize(
    "data", [b"\x00", b"\x00" * 1000, b"\x7fELF\x02\x01\x01\x00", b"PK\x03\x04", b"\xff\xfe\x00a"]
)
def test_other_binary_files(data: bytes) -> None:
    with pytest.raises(HloParseError, match=r"^x: "):
        parse_bytes(data, "x")


@pytest.mark.parametrize("name", ["control", "literals", "shardings"])
def test_every_truncation_is_an_error_or_a_module(name: str) -> None:
    data = serialize(example(name))
    for end in range(0, len(data), 7):
        try:
            spmd.verify(parse_proto(data[:end]))
        except SpmdError:
            continue


def test_mutations_end_soon_in_a_module_or_an_error() -> None:
    """More of them: python -m tests.spmd.proto.mutate --count 100000"""
    modules = 0
    for number, data in enumerate(mutations(600, 1, originals())):
        start = time.process_time()
        modules += carry(data)
        assert time.process_time() - start < LIMIT, number
    # Mutations that no reader notices would test nothing, and so would ones that it always refuses at once.
    assert 20 < modules < 400


def test_a_file_of_either_kind_is_told_by_content(tmp_path: Path) -> None:
    module = example("control")
    wrapped = HloProto()
    wrapped.raws[HloProto.hlo_module.number] = [serialize_hlo_proto(module)]
    kinds = (serialize(module), serialize_hlo_proto(module), bytes(wrapped))
    for number, data in enumerate(kinds):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(data)
        assert spmd.load(path).entry.name == "e"
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "module_0000.m.before_optimizations.hlo.pb").write_bytes(serialize_hlo_proto(module))
    assert spmd.load(folder).name == "m"
