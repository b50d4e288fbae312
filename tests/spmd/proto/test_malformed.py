"""Protos that are no modules: each is one error that names the place and the reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import spmd
from spmd.errors import HloParseError, SpmdError, UnsupportedError
from spmd.hlo import Opcode
from spmd.limits import MAX_IMPLIED
from spmd.ops.attrs import CompareAttrs
from spmd.proto.reader import parse_proto
from spmd.proto.schema.hlo import (
    HloComputationProto,
    HloInstructionProto,
    HloModuleProto,
    HloProto,
)
from spmd.proto.schema.xla_data import (
    IotaTransformProto,
    LayoutProto,
    LiteralProto,
    MeshAxisProto,
    MeshProto,
    NamedShardingProto,
    OpShardingProto,
    ResultAccuracyProto,
    ShapeProto,
    StatisticProto,
    StatisticsVizProto,
    TileProto,
    ToleranceProto,
)
from spmd.proto.writer import serialize, serialize_hlo_proto
from spmd.text.parser import parse_module
from spmd.text.sources.load import parse_bytes
from tests.spmd.proto.examples import example
from tests.spmd.proto.mutate import LIMIT, carry, mutations, originals

TEXT = """
HloModule m

ENTRY e {
  a = f32[2,3]{1,0} parameter(0)
  b = f32[2,3]{1,0} negate(a)
  c = f32[2]{0} constant({1, 2})
  ROOT t = (f32[2,3]{1,0}, f32[2]{0}) tuple(b, c)
}
"""


def edited(change: Callable[[list[HloInstructionProto]], None]) -> bytes:
    """TEXT's proto with its instructions a, b, c, t changed."""
    module = HloModuleProto(serialize(parse_module(TEXT)))
    computation = module.computations[0]
    instructions = list(computation.instructions)
    change(instructions)
    return replaced(module, computation, instructions)


def replaced(
    module: HloModuleProto,
    computation: HloComputationProto,
    instructions: Iterable[HloInstructionProto],
) -> bytes:
    computation.instructions = list(instructions)
    module.computations = [computation]
    return bytes(module)


def shape_of(kind: int, *dims: int) -> ShapeProto:
    shape = ShapeProto()
    shape.element_type, shape.dimensions = kind, dims
    return shape


def _opcode(xs: list[HloInstructionProto]) -> None:
    xs[1].opcode = "frobnicate"


def _no_shape(xs: list[HloInstructionProto]) -> None:
    xs[1].shape = None


def _element_type(xs: list[HloInstructionProto]) -> None:
    xs[1].shape = shape_of(99, 2)


def _negative(xs: list[HloInstructionProto]) -> None:
    xs[1].shape = shape_of(11, -2)


def _layout(xs: list[HloInstructionProto]) -> None:
    shape = shape_of(11, 2, 3)
    layout = LayoutProto()
    layout.minor_to_major = (1, 1)
    shape.layout = layout
    xs[1].shape = shape


def _sparse(xs: list[HloInstructionProto]) -> None:
    shape = shape_of(11, 2)
    layout = LayoutProto()
    layout.minor_to_major, layout.dim_level_types = (0,), (1,)
    shape.layout = layout
    xs[1].shape = shape


def _deep(xs: list[HloInstructionProto]) -> None:
    shape = shape_of(13)
    for _ in range(300):
        outer = shape_of(13)
        outer.tuple_shapes = [shape]
        shape = outer
    xs[1].shape = shape


def _operand(xs: list[HloInstructionProto]) -> None:
    xs[1].operand_ids = (77,)


def _itself(xs: list[HloInstructionProto]) -> None:
    xs[1].operand_ids = (xs[1].id,)


def _same_id(xs: list[HloInstructionProto]) -> None:
    xs[1].id = xs[0].id


def _callee(xs: list[HloInstructionProto]) -> None:
    xs[1].opcode, xs[1].called_computation_ids = "call", (1,)


def _no_callee(xs: list[HloInstructionProto]) -> None:
    xs[1].opcode = "call"


def _literal_count(xs: list[HloInstructionProto]) -> None:
    literal = LiteralProto()
    literal.shape, literal.f32s = shape_of(11, 2), b"\0" * 12
    xs[2].literal = literal


def _literal_bytes(xs: list[HloInstructionProto]) -> None:
    literal = LiteralProto()
    literal.shape, literal.f32s = shape_of(11, 2), b"\0" * 7
    xs[2].literal = literal


def _literal_claim(xs: list[HloInstructionProto]) -> None:
    literal = LiteralProto()
    literal.shape, literal.f32s = shape_of(11, 1 << 40, 1 << 20), b"\0" * 8
    xs[2].literal = literal


def _literal_shape(xs: list[HloInstructionProto]) -> None:
    literal = LiteralProto()
    literal.shape, literal.s32s = shape_of(4, 2), b"\1\2"
    xs[2].literal = literal


def _no_literal(xs: list[HloInstructionProto]) -> None:
    xs[2].shape = shape_of(11)
    xs[2].literal = None


def _statistic(xs: list[HloInstructionProto]) -> None:
    statistics, item = StatisticsVizProto(), StatisticProto()
    item.stat_name, item.stat_val = "s", float("nan")
    statistics.statistics = [item]
    xs[1].statistics_viz = statistics


def _blank_axis(xs: list[HloInstructionProto]) -> None:
    axis, mesh, named, sharding = (
        MeshAxisProto(),
        MeshProto(),
        NamedShardingProto(),
        OpShardingProto(),
    )
    axis.name, axis.size = "a  b", 2
    mesh.axes = [axis]
    named.mesh = mesh
    sharding.named_sharding = named
    xs[1].sharding = sharding


def _tile(xs: list[HloInstructionProto]) -> None:
    shape, layout, tile = shape_of(11, 2, 3), LayoutProto(), TileProto()
    tile.dimensions = (8, -1)
    layout.minor_to_major, layout.tiles = (1, 0), [tile]
    shape.layout = layout
    xs[1].shape = shape


def _index_type(xs: list[HloInstructionProto]) -> None:
    shape, layout = shape_of(11, 2, 3), LayoutProto()
    layout.minor_to_major, layout.index_primitive_type = (1, 0), 11
    shape.layout = layout
    xs[1].shape = shape


def _tolerance(xs: list[HloInstructionProto]) -> None:
    accuracy, tolerance = ResultAccuracyProto(), ToleranceProto()
    tolerance.ulps = -1
    accuracy.tolerance = tolerance
    xs[1].opcode, xs[1].result_accuracy = "tanh", accuracy


def _sharding_type(xs: list[HloInstructionProto]) -> None:
    sharding = OpShardingProto()
    sharding.type = 9
    xs[1].sharding = sharding


def _sharding_devices(xs: list[HloInstructionProto]) -> None:
    sharding = OpShardingProto()
    sharding.type, sharding.tile_assignment_dimensions = 3, (2, 2)
    sharding.tile_assignment_devices = (0, 1, 2)
    xs[1].sharding = sharding


def _nested_tuple_sharding(xs: list[HloInstructionProto]) -> None:
    inner, outer = OpShardingProto(), OpShardingProto()
    inner.type = outer.type = 2
    outer.tuple_shardings = [inner]
    xs[1].sharding = outer


def _done_without_start(xs: list[HloInstructionProto]) -> None:
    xs[1].opcode = "async-done"


def _no_name(xs: list[HloInstructionProto]) -> None:
    xs[1].name = ""


def _parameter(xs: list[HloInstructionProto]) -> None:
    xs[0].parameter_number = 1


PLACE = r"^file\.pb: computation 'e', instruction '{}': "


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_opcode, PLACE.format("b") + r"unknown opcode 'frobnicate'$"),
        (_no_shape, PLACE.format("b") + r"the shape is missing$"),
        (_element_type, PLACE.format("b") + r"unknown element type 99$"),
        (_negative, PLACE.format("b") + r"negative size in the shape f32\[-2\]$"),
        (_layout, PLACE.format("b") + r"layout \[1, 1\] is no permutation of 2 dimensions$"),
        (_deep, PLACE.format("b") + r"shapes are nested deeper than 100$"),
        (_operand, PLACE.format("b") + r"no operand 77 stands before this instruction$"),
        (_itself, PLACE.format("b") + r"no operand \d+ stands before this instruction$"),
        (_same_id, r"^file\.pb: computation 'e': two instructions have the id \d+$"),
        (_callee, PLACE.format("b") + r"no computation 1 stands before this instruction$"),
        (_no_callee, PLACE.format("b") + r"call calls 1 computations, found 0$"),
        (
            _literal_count,
            PLACE.format("c") + r"a literal of shape f32\[2\] has 2 elements, found 3$",
        ),
        (_literal_bytes, PLACE.format("c") + r"7 bytes hold no whole number of f32 elements$"),
        (
            _literal_claim,
            PLACE.format("c") + r"a literal of shape .* has 1152921504606846976 elements, found 2$",
        ),
        (
            _literal_shape,
            PLACE.format("c") + r"a constant of shape f32\[2\]\{0\} has a literal of s32\[2\]$",
        ),
        (_no_literal, PLACE.format("c") + r"a constant of shape f32\[\] has no literal$"),
        (_statistic, PLACE.format("b") + r"the statistic 's' cannot be nan$"),
        (_blank_axis, PLACE.format("b") + r"the name of a mesh axis has several blanks in a row$"),
        (_tile, PLACE.format("b") + r"a tile of a layout has a negative size$"),
        (_index_type, PLACE.format("b") + r"an index or pointer type of a layout cannot be f32$"),
        (_tolerance, PLACE.format("b") + r"a tolerance is not finite, or its ulps are negative$"),
        (_sharding_type, PLACE.format("b") + r"unknown sharding type 9$"),
        (
            _sharding_devices,
            PLACE.format("b") + r"expected a device for each tile of \[2, 2\], found 3$",
        ),
        (_nested_tuple_sharding, PLACE.format("b") + r"a tuple sharding holds another one"),
        (
            _done_without_start,
            PLACE.format("b") + r"async-done follows an async-start or async-update$",
        ),
        (_no_name, PLACE.format("") + r"an instruction has no name$"),
        (_parameter, r"^file\.pb: computation 'e' has no parameter 0$"),
    ],
)
def test_each_error_names_the_instruction(
    change: Callable[[list[HloInstructionProto]], None], reason: str
) -> None:
    with pytest.raises(HloParseError, match=reason):
        parse_proto(edited(change), "file.pb")


def _large_meshes(xs: list[HloInstructionProto]) -> None:
    for i, x in enumerate(xs):
        axis, iota, mesh = MeshAxisProto(), IotaTransformProto(), MeshProto()
        axis.name, axis.size = f"x{i}", MAX_IMPLIED // 2
        iota.reshape_dims, iota.transpose_perm = (MAX_IMPLIED >> 8, 1 << 7), (1, 0)
        mesh.axes, mesh.iota_transform = [axis], iota
        named, sharding = NamedShardingProto(), OpShardingProto()
        named.mesh = mesh
        sharding.named_sharding = named
        x.sharding = sharding


def test_device_lists_that_are_only_implied_are_counted() -> None:
    with pytest.raises(
        HloParseError, match="instruction 'c': device lists: the proto implies more"
    ):
        parse_proto(edited(_large_meshes), "file.pb")


def test_control_edges_are_added_in_linear_time() -> None:
    first, then = 1000, 150
    lines = "\n".join(f"a{i} = f32[] constant(0)" for i in range(first + then))
    module = HloModuleProto(serialize(parse_module(f"HloModule m\nENTRY e {{\n{lines}\n}}\n")))
    computation = module.computations[0]
    instructions = list(computation.instructions)
    for x in instructions[first:]:
        x.control_predecessor_ids = tuple(range(first)) * 2
    start = time.process_time()
    read = parse_proto(replaced(module, computation, instructions))
    assert time.process_time() - start < LIMIT
    assert len(read.entry.root.control_predecessors) == first


def test_sparse_layouts_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="sparse layouts are not supported"):
        parse_proto(edited(_sparse), "file.pb")


def test_the_edit_itself_changes_nothing() -> None:
    assert str(parse_proto(edited(lambda xs: None))) == str(
        parse_proto(serialize(parse_module(TEXT)))
    )


def _old_opcode(xs: list[HloInstructionProto]) -> None:
    xs[1].opcode, xs[1].operand_ids = "less-than-or-equal-to", (xs[0].id, xs[0].id)


def test_comparisons_of_old_trees_are_compares() -> None:
    module = parse_proto(edited(_old_opcode))
    (found,) = module.entry.with_opcode(Opcode.COMPARE)
    assert found.attrs == CompareAttrs("LE")


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
        (_empty, "it holds no computations"),
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
