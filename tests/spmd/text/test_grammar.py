"""Tests of texts that the grammar allows beyond the lines that XLA prints."""

from __future__ import annotations

import pytest
from same_module import assert_same_module

from spmd.errors import HloParseError
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.hlo.opcode import ResultAccuracyAttrs
from spmd.ops.attrs import (
    AsyncAttrs,
    CollectiveAttrs,
    CollectivePermuteAttrs,
    ConditionalAttrs,
    ConvolutionAttrs,
    CustomCallAttrs,
    DimensionsAttrs,
    DomainAttrs,
    FusionAttrs,
    PadAttrs,
    SliceAttrs,
    TupleIndexAttrs,
)
from spmd.ops.window import WindowDimension
from spmd.shape import PrimitiveType, array
from spmd.shape_compatibility import compatible
from spmd.source_target_pairs import ListedPairs
from spmd.text.parser import parse_module
from spmd.text.printer import print_module

ADD = """
sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

neg {
  n = f32[] parameter(0)
  ROOT m = f32[] negate(n)
}
"""


def module_of(body: str, header: str = "HloModule m") -> HloModule:
    """A module whose entry is ``body``; checked to come back from its own text."""
    module = parse_module(f"{header}\n{ADD}\nENTRY e {{\n{body}\n}}\n")
    assert_same_module(parse_module(print_module(module)), module)
    return module


def root_of(body: str) -> HloInstruction:
    return module_of(body).entry.root


# ---- white space, comments, names
@pytest.mark.parametrize(
    "body",
    [
        "a = f32[2,3]{1,0} parameter(0) ROOT t = f32[3,2]{1,0} transpose(a), dimensions={1,0}",
        "a = f32[2,3]{1,0} parameter(0)\nROOT t = f32[3,2]{1,0} transpose(a),\n\n  dimensions={1,0}",
        "a = f32[2,3]{1,0} parameter(0)\nROOT t = f32[3,2]{1,0} transpose(a)\n , dimensions={1, 0}",
        "%a = f32[2,3]{1,0} parameter(0)\r\nROOT t = f32[3,2]{1,0} transpose(%a), dimensions={1,0}\r\n",
        "a = f32[ 2, 3 ]{1,0} parameter( 0 )\nROOT t = f32[3,2] transpose( a ), dimensions={1,0}",
        (
            "a = f32[2,3] parameter(0) // dimensions={0,1}\n"
            "ROOT /* x */ t = f32[3,2] /**/ transpose(/*o*/ a), dimensions={1,0} // }"
        ),
        "ROOT t = f32[3,2] transpose(f32[2,3] parameter(0)), dimensions={1,0}",
        "a = f32[2,3]{1,0} parameter(0)\nROOT t = transpose(a), dimensions={1,0}",
        "a = f32[2,3]{1,0} parameter(0)\nROOT t = f32[3,2]{1,0} transpose(f32[2,3] %a), dimensions={1,0}",
    ],
)
def test_one_transpose_in_many_spellings(body: str) -> None:
    root = root_of(body)
    assert root.opcode is Opcode.TRANSPOSE
    assert root.attrs == DimensionsAttrs((1, 0))
    assert compatible(root.shape, array(PrimitiveType.F32, 3, 2))
    assert root.operand(0).opcode is Opcode.PARAMETER


def test_root_is_the_last_instruction_unless_said_otherwise() -> None:
    assert root_of("a = f32[] parameter(0)\nb = f32[] negate(a)").name == "b"
    assert root_of("a = f32[] parameter(0)\nROOT b = f32[] negate(a)\nc = f32[] abs(a)").name == "b"


def test_parameters_come_in_any_order() -> None:
    module = module_of("b = s32[] parameter(1)\na = f32[] parameter(0)\nROOT t = tuple(a, b)")
    assert [p.name for p in module.entry.parameters] == ["a", "b"]


def test_names_are_made_unique_across_computations() -> None:
    module = module_of("x = f32[] parameter(0)\nROOT z = f32[] negate(x)")
    names = [i.name for i in module.all_instructions()]
    assert len(set(names)) == len(names)
    assert module.entry.root.operand(0).name == "x.1"


def test_without_header_and_entry_the_last_computation_is_the_entry() -> None:
    module = parse_module("f { a = f32[] parameter(0) }\ng { b = f32[] parameter(0) }")
    assert (module.name, module.entry.name) == ("module_g", "g")


def test_a_single_instruction_is_a_module() -> None:
    module = parse_module("%r = f32[4]{0} add(f32[4]{0} %a, f32[4]{0} %b)")
    assert [p.name for p in module.entry.parameters] == ["a", "b"]
    assert parse_module("r = f32[2] add(f32[2] a, f32[2] a)").entry.num_parameters == 1
    assert parse_module("r = f32[2] add(f32[2], f32[2])").entry.num_parameters == 2


def test_nested_operands() -> None:
    root = root_of(
        "a = f32[2] parameter(0)\nROOT c = f32[2] add(f32[2] negate(a), negate(f32[2] negate(a)))"
    )
    first, second = root.operands
    assert first.opcode is second.opcode is second.operand(0).opcode is Opcode.NEGATE
    assert first.operand(0) is second.operand(0).operand(0)


def test_tuple_element_by_index() -> None:
    root = root_of("p = (f32[], (s32[], f32[2])) parameter(0)\nROOT c = f32[2] negate(%p#1#1)")
    element = root.operand(0)
    assert element.attrs == TupleIndexAttrs(1)
    assert element.operand(0).attrs == TupleIndexAttrs(1)
    with pytest.raises(HloParseError, match="has no element 2"):
        module_of("p = (f32[], f32[]) parameter(0)\nROOT c = f32[] negate(p#2)")


def test_inline_computations() -> None:
    module = module_of(
        "a = f32[8] parameter(0)\nz = f32[] constant(0)\n"
        "ROOT r = f32[] reduce(a, z), dimensions={0}, "
        "to_apply={ x = f32[] parameter(0) y = f32[] parameter(1) ROOT w = f32[] add(x, y) }"
    )
    reducer = module.entry.root.to_apply
    assert reducer.root.opcode is Opcode.ADD
    assert module.computations.index(reducer) < module.computations.index(module.entry)


def test_signatures_and_threads() -> None:
    module = parse_module(
        "%f (x: f32[2], y: (s32[], pred[])) -> f32[2] {\n  x = f32[2]{0} parameter(0)\n"
        '  y = (s32[], pred[]) parameter(1)\n  ROOT r = f32[2]{0} negate(x)\n}, execution_thread="host"\n'
        "ENTRY e { ROOT a = f32[] parameter(0) }"
    )
    assert module.computations[0].execution_thread == "host"
    assert module.computations[0].num_parameters == 2


# ---- header
def test_header() -> None:
    module = module_of(
        "a = f32[2]{0} parameter(0)\nROOT t = (f32[2]{0}, f32[2]{0}) tuple(a, a)",
        "HloModule m, num_partitions=4, is_scheduled=true, replica_count=2, "
        "input_output_alias={ {0}: (0, {}), {1}: (0, {}, must-alias) }, buffer_donor={ (0, {}) }, "
        "entry_computation_layout={(f32[2]{0})->(f32[2]{0}, /*x*/f32[2]{0})}, "
        "allow_spmd_sharding_propagation_to_output={true,false}, alias_passthrough_params=true, "
        'frontend_attributes={k="v \\"w\\"",xla.sdy.meshes={mesh = #sdy.mesh<["x"=8]>}}',
    )
    assert module.stage is Stage.SCHEDULED
    assert (module.num_partitions, module.replica_count, module.states_partitions) == (4, 2, True)
    assert [a.must_alias for a in module.input_output_alias] == [False, True]
    assert module.buffer_donors[0].parameter == 0
    assert module.frontend("k") == 'v "w"'
    assert module.frontend("xla.sdy.meshes") == '{mesh = #sdy.mesh<["x"=8]>}'
    assert module.entry_layout is not None
    assert str(module.entry_layout.result) == "(f32[2]{0}, f32[2]{0})"


# ---- attributes of any instruction
def test_annotations() -> None:
    root = root_of(
        "a = f32[2] parameter(0)\nb = f32[2] abs(a)\n"
        "ROOT r = f32[2] negate(a), metadata={op_type=\"t\", op_name=\"n\\n'q'\" source_file='c.py' "
        'source_line=7 source_end_line=8 profile_type={1} scheduling_name="s"}, '
        'frontend_attributes={_g="1",k={n = 1 : i32}}, backend_config={"a":{"b":[1,2]}}, '
        "control-predecessors={%b, a}, statistics={visualizing_index=1,s-1=33}, origin={}"
    )
    notes = root.annotations
    assert (notes.metadata.op_type, notes.metadata.op_name) == ("t", "n\n'q'")
    assert (notes.metadata.source_file, notes.metadata.source_line) == ("c.py", 7)
    assert dict(notes.metadata.extra) == {
        "source_end_line": "8",
        "profile_type": "{1}",
        "scheduling_name": '"s"',
    }
    assert notes.frontend_attributes == (("_g", "1"), ("k", "{n = 1 : i32}"))
    assert notes.backend_config == '{"a":{"b":[1,2]}}'
    assert dict(notes.extra) == {"statistics": "{visualizing_index=1,s-1=33}", "origin": "{}"}
    assert [p.name for p in root.control_predecessors] == ["b", "a"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"opaque"', "opaque"),
        ("'single'", "single"),
        ('{key: "v"}', '{key: "v"}'),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
        ('"caf\\303\\251"', "café"),
        ('"tab\\tnl\\n\\x41"', "tab\tnl\nA"),
        ('"{unbalanced"', "{unbalanced"),
    ],
)
def test_backend_config_is_text_or_braces(written: str, value: str) -> None:
    root = root_of(f"a = f32[] parameter(0)\nROOT b = f32[] negate(a), backend_config={written}")
    assert root.annotations.backend_config == value


# ---- attributes of operations
def test_convolution() -> None:
    attrs = root_of(
        "p = f32[1,9,9,4] parameter(0)\nk = f32[3,3,2,4] parameter(1)\n"
        "ROOT c = f32[1,6,9,4] convolution(p, k), window={size=3x3 stride=2x1 pad=1_2x0_-1 lhs_dilate=1x1 "
        "rhs_dilate=1x1 rhs_reversal=0x1}, dim_labels=b01f_01io->b01f, feature_group_count=2, "
        "operand_precision={high,default}"
    ).attrs_as(ConvolutionAttrs)
    assert attrs.window.dims == (
        WindowDimension(3, 2, 1, 2),
        WindowDimension(3, 1, 0, -1, reversal=True),
    )
    assert attrs.dimension_numbers.input_spatial == (1, 2)
    assert attrs.dimension_numbers.kernel_output_feature == 3
    assert (attrs.feature_group_count, attrs.batch_group_count) == (2, 1)
    assert attrs.operand_precision == ("high", "default")


def test_pad_and_slice() -> None:
    pad = root_of(
        "a = f32[2,3] parameter(0)\nz = f32[] parameter(1)\n"
        "ROOT p = f32[5,6] pad(a, z), padding=1_1_1x-1_2_1"
    )
    assert pad.attrs == PadAttrs((1, -1), (1, 2), (1, 1))
    cut = root_of("a = f32[8,3] parameter(0)\nROOT p = f32[2,2] slice(a), slice={[0:4:2], [1:3]}")
    assert cut.attrs == SliceAttrs((0, 1), (4, 3), (2, 1))


def test_conditionals() -> None:
    head = "p = pred[] parameter(0)\na = f32[] parameter(1)\nROOT w = f32[] conditional(p, a, a), "
    two = root_of(head + "true_computation=neg, false_computation=%neg")
    assert two.attrs == ConditionalAttrs(predicated=True)
    assert [c.name for c in two.called_computations] == ["neg", "neg"]
    head = head.replace("pred[]", "s32[]")
    many = root_of(head + "branch_computations={%neg, { q = f32[] parameter(0) }}")
    assert many.attrs == ConditionalAttrs()
    assert many.called_computations[1].root.opcode is Opcode.PARAMETER


def test_custom_call() -> None:
    attrs = root_of(
        "a = f32[4]{0} parameter(0)\n"
        'ROOT g = (f32[4]{0}, f32[]) custom-call(a), custom_call_target="t", window={size=3 pad=1_1}, '
        "dim_labels=b0f_0io->b0f, operand_layout_constraints={f32[4]{0}}, api_version=API_VERSION_TYPED_FFI, "
        "schedule=SCHEDULE_EARLIEST, custom_call_has_side_effect=true, called_computations={sum, neg}, "
        "literal=( s32[2]{0} {1,2}, pred[] true ), output_to_operand_aliasing={{0}: (0, {})}, "
        "padding_type=PADDING_SAME"
    ).attrs_as(CustomCallAttrs)
    assert attrs.target == "t"
    assert attrs.has_side_effect
    assert attrs.output_to_operand_aliasing == (((0,), 0, ()),)
    assert attrs.operand_layout_constraints is not None
    assert attrs.literal is not None
    assert [e.value().tolist() for e in attrs.literal.elements] == [[1, 2], True]
    assert dict(attrs.extra) == {"dim_labels": "b0f_0io->b0f", "padding_type": "PADDING_SAME"}


def test_kept_as_text() -> None:
    domain = root_of(
        "a = f32[4] parameter(0)\n"
        'ROOT g = f32[4] domain(a), domain={kind="sharding", entry={maximal device=0}, exit={replicated}}'
    )
    assert domain.attrs == DomainAttrs(
        '{kind="sharding", entry={maximal device=0}, exit={replicated}}'
    )
    tanh = root_of(
        "a = f32[4] parameter(0)\nROOT g = f32[4] tanh(a), result_accuracy={tolerance={atol=0.1,ulps=3}}"
    )
    assert tanh.attrs == ResultAccuracyAttrs("tolerance={atol=0.1,ulps=3}")


def test_fusion_aliasing() -> None:
    root = root_of(
        "a = f32[] parameter(0)\n"
        "ROOT g = f32[] fusion(a, a), kind=kLoop, output_to_operand_aliasing={{}: (1, {})}, calls=sum"
    )
    assert root.attrs == FusionAttrs("kLoop", (((), 1, ()),))


# ---- collectives
def test_collectives() -> None:
    reduce = root_of(
        "a = f32[8] parameter(0)\nROOT r = f32[8] all-reduce(a), channel_id=3, "
        "replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=sum"
    ).attrs_as(CollectiveAttrs)
    assert (reduce.channel_id, reduce.use_global_device_ids, reduce.dimension) == (3, True, None)
    assert reduce.replica_groups.expand(4) == ((0, 1), (2, 3))
    gather = root_of(
        "a = f32[8] parameter(0)\nROOT r = f32[16] all-gather(a), replica_groups=[2,2] <= [4], dimensions={0}"
    ).attrs_as(CollectiveAttrs)
    assert gather.dimension == 0
    permute = root_of(
        "a = f32[8] parameter(0)\nROOT r = f32[8] collective-permute(a), source_target_pairs={{0,1},{1,0}}"
    )
    assert permute.attrs == CollectivePermuteAttrs(ListedPairs(((0, 1), (1, 0))))


# ---- asynchronous operations
def test_generic_async_shares_the_wrapped_computation() -> None:
    module = parse_module(
        "w {\n x = f32[4] parameter(0)\n ROOT y = f32[4] negate(x)\n}\nENTRY e {\n p = f32[4] parameter(0)\n"
        " s = ((f32[4]), f32[4], s32[]) async-start(p), calls=w\n"
        " u = ((f32[4]), f32[4], s32[]) async-update(s)\n ROOT d = f32[4] async-done(u)\n}\n"
    )
    _, start, update, done = module.entry.instructions
    assert start.to_apply is update.to_apply is done.to_apply
    assert_same_module(parse_module(print_module(module)), module)


def test_short_async_form() -> None:
    body = (
        "a = f32[8,8]{1,0} parameter(0)\n"
        "  r = ((f32[8,8]{1,0}), f32[4,8]{1,0}, s32[]) slice-start(a), "
        'async_execution_thread="host", slice={[0:4], [0:8]}\n'
        "  u = ((f32[8,8]{1,0}), f32[4,8]{1,0}, s32[]) slice-update(r)\n"
        "  ROOT d = f32[4,8]{1,0} slice-done(u)"
    )
    module = module_of(body)
    done = module.entry.root
    wrapped = done.to_apply
    assert done.opcode is Opcode.ASYNC_DONE
    assert done.attrs_as(AsyncAttrs).sugar
    assert wrapped.execution_thread == "host"
    assert wrapped.root.attrs == SliceAttrs((0, 0), (4, 8), (1, 1))
    assert body in print_module(module)
    assert wrapped.name not in print_module(module)


def test_short_async_form_is_spelt_out_once_its_computation_grew() -> None:
    module = module_of(
        "a = f32[8] parameter(0)\ns = ((f32[8]), f32[8], s32[]) negate-start(a)\nROOT d = f32[8] negate-done(s)"
    )
    wrapped = module.entry.root.to_apply
    wrapped.root = wrapped.create(Opcode.ABS, wrapped.root.shape, [wrapped.root], name="more")
    text = print_module(module)
    assert "async-start(a), calls=wrapped_negate" in text
    assert print_module(parse_module(text)) == text


@pytest.mark.parametrize("opcode", ["all-reduce-update", "send-start", "copy-update"])
def test_operations_without_a_generic_async_form(opcode: str) -> None:
    with pytest.raises(HloParseError, match=f"unknown opcode '{opcode}'"):
        module_of(f"a = f32[8] parameter(0)\nROOT s = f32[8] {opcode}(a)")


def test_every_opcode_has_a_text() -> None:
    from spmd.text.attrs_text import ATTRS_TEXT

    assert [opcode for opcode in Opcode if opcode not in ATTRS_TEXT] == []
