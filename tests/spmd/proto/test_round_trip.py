"""Tests that a module written as a proto comes back as the same module, and that text and proto of a program agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from same_module import assert_same_module

import spmd
from spmd.analysis.structure import StructuralKeys, canonical_order
from spmd.hlo import HloModule, Opcode, Stage
from spmd.ops.attrs import AsyncAttrs, BatchNormAttrs, ConstantAttrs, DomainAttrs
from spmd.proto.attrs_proto import ATTRS_PROTO
from spmd.proto.reader import parse_proto
from spmd.proto.schema.hlo import HloModuleProto
from spmd.proto.writer import serialize, serialize_hlo_proto
from spmd.shape import ArrayShape, Shape, TupleShape
from spmd.text.parser import parse_module
from spmd.text.printer import print_module
from tests.paths import TESTS
from tests.spmd.proto.examples import TEXTS, example
from tests.strategies import generate

CASES = sorted((TESTS / "cases").glob("*/*.hlo"))
CONFIGURATION = (
    "alias_passthrough_params",
    "allow_spmd_sharding_propagation_to_parameters",
    "allow_spmd_sharding_propagation_to_output",
)


def without_configuration(module: HloModule) -> HloModule:
    """Remove the header attributes that configure the partitioner, for which the proto has no place."""
    module.extra_header = tuple(p for p in module.extra_header if p[0] not in CONFIGURATION)
    return module


def test_every_opcode_has_a_proto_and_an_example() -> None:
    assert set(ATTRS_PROTO) == set(Opcode)
    used = {x.opcode for name in TEXTS for x in example(name).all_instructions()}
    assert used == set(Opcode)


@pytest.mark.parametrize("name", TEXTS)
def test_examples_come_back(name: str) -> None:
    """The proto comes back as the text that XLA would print.

    Asynchronous operations have the short form, and there is always an entry layout.
    """
    module = example(name)
    again = parse_proto(serialize(module))
    if module.entry_layout is None:
        assert again.entry_layout is not None
        again.entry_layout = None
    for x in module.all_instructions():
        if isinstance(x.attrs, AsyncAttrs):
            x.attrs = replace(x.attrs, sugar=True)
    assert_same_module(again, module)
    spmd.verify(again)


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_cases_come_back(path: Path) -> None:
    """A proto that was read is written as the same bytes again."""
    module = spmd.load(path)
    data = serialize(module)
    assert serialize(parse_proto(serialize_hlo_proto(module))) == data
    again = parse_proto(data)
    assert serialize(again) == data
    assert_same_module(again, without_configuration(module))


def programs_agree(a: HloModule, b: HloModule) -> None:
    """Assert that programs are equal from the entries' roots, but for names.

    Operations, shapes, callees, shardings and attributes are compared.
    """
    keys = StructuralKeys()
    assert keys.key(a.entry) == keys.key(b.entry)
    for left, right in zip(a.computations_post_order(), b.computations_post_order(), strict=True):
        pairs = zip(canonical_order(left), canonical_order(right), strict=True)
        for x, y in pairs:
            assert (x.shape, x.sharding) == (y.shape, y.sharding)
            assert x.annotations.frontend_attributes == y.annotations.frontend_attributes
    assert a.entry_layout == b.entry_layout
    assert a.input_output_alias == b.input_output_alias
    assert a.frontend_attributes == b.frontend_attributes


PAIRS = sorted((TESTS / "cases").glob("*/module.pb"))


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.parent.name)
def test_proto_and_text_that_jax_wrote_agree(path: Path) -> None:
    programs_agree(spmd.load(path), spmd.load(path.with_suffix(".hlo")))


def test_schedules_keep_their_order() -> None:
    module = example("header")
    again = parse_proto(serialize(module))
    assert again.stage is Stage.SCHEDULED
    names = [x.name for x in again.entry.instructions]
    assert names == ["c", "b", "a", "d", "f", "t"]


def test_ids_are_the_computation_and_the_place_in_it() -> None:
    proto = HloModuleProto(serialize(example("control")))
    assert len({c.id for c in proto.computations}) == len(proto.computations)
    for computation in proto.computations:
        wanted = [computation.id << 32 | i for i in range(len(computation.instructions))]
        assert [x.id for x in computation.instructions] == wanted


def test_computations_out_of_order_are_written_callees_first() -> None:
    module = example("control")
    module.computations.reverse()
    again = parse_proto(serialize(module))
    programs_agree_ignoring_layout(again, module)


def programs_agree_ignoring_layout(a: HloModule, b: HloModule) -> None:
    keys = StructuralKeys()
    assert keys.key(a.entry) == keys.key(b.entry)


def test_elided_constants_stay_elided() -> None:
    again = parse_proto(serialize(example("literals")))
    (elided,) = [x for x in again.entry.instructions if x.name.startswith("ff")]
    assert elided.attrs == ConstantAttrs(None)


@pytest.mark.parametrize("kind", ["f6e2m3fn", "f6e3m2fn"])
def test_numbers_of_six_bits(kind: str) -> None:
    """A byte holds one number; they are not among the examples, since XLA's writer ends its process at them."""
    text = f"HloModule t\n\nENTRY e {{\n  ROOT c = {kind}[5]{{0}} constant({{1, -2.5, 7, 0, 0.5}})\n}}\n"
    again = parse_proto(serialize(parse_module(text)))
    assert "{1, -2.5, 7, 0, 0.5}" in print_module(again)


def test_domain_sides_are_those_of_the_text() -> None:
    """XLA's proto calls the operand's side entry, its text the user's side."""
    module = parse_proto(serialize(example("control")))
    (domain,) = module.entry.with_opcode(Opcode.DOMAIN)
    assert domain.attrs_as(DomainAttrs).text == (
        '{kind="sharding", entry={maximal device=1}, exit={devices=[2]<=[2]}}'
    )


def test_epsilon_is_the_decimal_that_was_written() -> None:
    module = parse_proto(serialize(example("reductions")))
    found = [x.attrs for x in module.entry.with_opcode(Opcode.BATCH_NORM_INFERENCE)]
    assert found == [BatchNormAttrs(0.001, 1)]


@pytest.mark.parametrize("stable", ["", ", is_stable=true", ", is_stable=false"])
def test_topk_is_stable_whatever_a_text_asks(stable: str) -> None:
    """A text without the attribute asks XLA for a stable topk.

    The reader of jaxlib 0.10.2 does not know the attribute.
    """
    body = "a = f32[6,8]{1,0} parameter(0)\n"
    body += f"ROOT m = (f32[6,3]{{1,0}}, s32[6,3]{{1,0}}) topk(a), k=3, largest=true{stable}"
    module = spmd.parse(f"HloModule m\n\nENTRY e {{\n{body}\n}}\n")
    assert "is_stable" not in str(module)
    (computation,) = HloModuleProto(serialize(module)).computations
    assert computation.instructions[1].is_stable


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_come_back(seed: int) -> None:
    module = generate(seed).module
    again = parse_proto(serialize(module))
    with_layouts(module)
    keys = StructuralKeys()
    assert keys.key(again.entry) == keys.key(module.entry)
    assert facts(again) == facts(module)


def with_layouts(module: HloModule) -> None:
    """Set the layouts that a generated module leaves out: these are row-major, and the proto states them."""
    for x in module.all_instructions():
        x.shape = row_major(x.shape)


def row_major(shape: Shape) -> Shape:
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(row_major, shape.elements)))
    if isinstance(shape, ArrayShape) and shape.rank and shape.layout is None:
        return shape.with_default_layout()
    return shape


def facts(module: HloModule) -> dict[str, tuple[object, ...]]:
    """Return the facts of each instruction by name; frontend attributes have no order in a proto."""
    return {
        x.name: (x.shape, x.sharding, x.attrs, dict(x.annotations.frontend_attributes))
        for x in module.all_instructions()
    }


def test_a_send_has_the_layout_of_its_operand() -> None:
    """XLA makes the shape of a send from its operands, whatever the proto or the text says."""
    text = """
HloModule m, num_partitions=2
ENTRY e {
  x = f32[4]{0} parameter(0)
  t = token[] after-all()
  s = (f32[4]{0}, u32[], token[]) send(x, t), channel_id=1
  ROOT d = token[] send-done(s), channel_id=1
}
"""
    proto = HloModuleProto(serialize(parse_module(text)))
    before = parse_proto(bytes(proto))
    (computation,) = proto.computations
    instructions = list(computation.instructions)
    (send,) = (each for each in instructions if each.opcode == "send")
    shape = send.shape
    sent, *others = shape.tuple_shapes
    layout = sent.layout
    layout.tail_padding_alignment_in_elements = 70
    sent.layout, shape.tuple_shapes = layout, [sent, *others]
    send.shape, computation.instructions = shape, instructions
    proto.computations = [computation]
    assert print_module(parse_proto(bytes(proto))) == print_module(before)
