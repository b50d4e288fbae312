"""Directories that --xla_dump_to writes: one module, several to choose from, texts and protos, packed ones."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import spmd
from spmd.errors import HloParseError
from spmd.proto.writer import serialize_hlo_proto
from spmd.text.sources.load import parse_bytes

TEXT = "HloModule {name}, num_partitions={n}\n\nENTRY e {{\n  ROOT a = f32[{n}]{{0}} parameter(0)\n}}\n"
LAYOUT = "entry_computation_layout={()->f32[3]{0}}"
CONSTANT = f"HloModule c, {LAYOUT}, num_partitions=4\n\nENTRY e {{\n  ROOT a = f32[3]{{0}} constant(%s)\n}}\n"


def text_of(name: str, partitions: int) -> str:
    return TEXT.format(name=name, n=partitions)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Three modules as JAX leaves them: helpers beside the step, each also after optimization."""
    for number, name, partitions in ((0, "jit_init", 1), (4, "jit_step", 4), (12, "jit_step_2", 8)):
        stem = tmp_path / f"module_{number:04}.{name}"
        stem.mkdir()
        for stage in ("before_optimizations", "cpu_after_optimizations"):
            Path(f"{stem}.{stage}.txt").write_text(text_of(name, partitions))
            proto = serialize_hlo_proto(spmd.parse(text_of(name, partitions)))
            Path(f"{stem}.{stage}.hlo.pb").write_bytes(proto)
    return tmp_path


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ("jit_init", "jit_init"),
        ("init", "jit_init"),
        ("jit_step", "jit_step"),  # the name itself goes before a part of one
        ("4", "jit_step"),
        ("12", "jit_step_2"),
        ("module_0004", "jit_step"),
        ("module_0012.jit_step_2", "jit_step_2"),
        ("step_2", "jit_step_2"),
    ],
)
def test_a_module_is_chosen_by_number_name_or_a_part_of_it(
    dump: Path, choice: str, name: str
) -> None:
    module = spmd.load(f"{dump}:{choice}")
    assert module.name == name
    assert str(module) == text_of(name, module.num_partitions)


def test_several_modules_are_listed_with_sizes_and_how_to_choose(dump: Path) -> None:
    with pytest.raises(HloParseError) as caught:
        spmd.load(dump)
    first, *listed = str(caught.value).splitlines()
    assert first.startswith(f"{dump}: 3 modules; choose one by its number or a part of its name")
    assert first.endswith(f"such as {dump}:module_0012")
    size = len(text_of("jit_step", 4))
    assert [line.split() for line in listed] == [
        [str(size + 2), "bytes", "module_0012.jit_step_2"],
        [str(size), "bytes", "module_0000.jit_init"],
        [str(size), "bytes", "module_0004.jit_step"],
    ]


def test_choices_that_fit_none_or_several(dump: Path) -> None:
    with pytest.raises(HloParseError, match="no module is named 'train'\n"):
        spmd.load(f"{dump}:train")
    with pytest.raises(HloParseError, match="2 modules have 'step' in their names") as caught:
        spmd.load(f"{dump}:step")
    assert "jit_init" not in str(caught.value)


def test_a_colon_in_a_path_is_no_choice(dump: Path, tmp_path: Path) -> None:
    file = tmp_path / "a:b"
    file.write_text(text_of("colon", 2))
    assert spmd.load(file).name == "colon"
    with pytest.raises(HloParseError, match="No such file"):
        spmd.load(tmp_path / "no:b")


def test_long_lists_end(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"module_{number:04}.m.before_optimizations.txt").write_text("x")
    with pytest.raises(HloParseError, match=r"and 10 smaller ones$"):
        spmd.load(tmp_path)


def test_packed_protos(tmp_path: Path) -> None:
    text = text_of("packed", 2).replace("{2}", "{0}")
    module = spmd.parse(text)
    data = gzip.compress(serialize_hlo_proto(module))
    (tmp_path / "module_0000.packed.before_optimizations.hlo.pb.gz").write_bytes(data)
    assert spmd.load(tmp_path).entry.root.shape == module.entry.root.shape
    assert parse_bytes(gzip.compress(text.encode())).name == "packed"


@pytest.mark.parametrize("kept", [2, -3])
def test_damaged_packing(kept: int) -> None:
    data = gzip.compress(b"HloModule")[:kept]
    with pytest.raises(HloParseError, match="damaged"):
        parse_bytes(data)


def test_packing_does_not_outgrow_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spmd.text.sources.load.MAX_INFLATED", 1000)
    with pytest.raises(HloParseError, match="more than 1000 bytes"):
        parse_bytes(gzip.compress(b" " * 1001))


def test_a_constant_that_the_text_elides_is_taken_from_the_proto(tmp_path: Path) -> None:
    """Dumped texts elide large constants and state the configuration; the protos do the opposite."""
    whole = CONSTANT % "{1, 2, 3}"
    (tmp_path / "module_0000.c.before_optimizations.txt").write_text(CONSTANT % "{...}")
    assert "{...}" in str(spmd.load(tmp_path))
    proto = serialize_hlo_proto(spmd.parse(whole.replace(", num_partitions=4", "")))
    (tmp_path / "module_0000.c.before_optimizations.hlo.pb").write_bytes(proto)
    assert str(spmd.load(tmp_path)) == whole
