"""Protos that are no modules: each is one error that names the place and the reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pytest

from spmd.errors import HloParseError, UnsupportedError
from spmd.hlo import Opcode
from spmd.hlo.opcode import CompareAttrs
from spmd.limits import MAX_IMPLIED
from spmd.proto.reader import parse_proto
from spmd.proto.schema.hlo import (
    HloComputationProto,
    HloInstructionProto,
    HloModuleProto,
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
from spmd.proto.writer import serialize
from spmd.text.parser import parse_module
from tests.spmd.proto.mutate import LIMIT

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
        (_layout, PLACE.format("b") + r"layout \[1, 1\] is not a permutation of 2 dimensions$"),
        (_deep, PLACE.format("b") + r"shapes are nested deeper than 100$"),
        (_operand, PLACE.format("b") + r"no operand 77 is defined before this instruction$"),
        (_itself, PLACE.format("b") + r"no operand \d+ is defined before this instruction$"),
        (_same_id, r"^file\.pb: computation 'e': two instructions have the id \d+$"),
        (_callee, PLACE.format("b") + r"no computation 1 is defined before this instruction$"),
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
