"""Each rule of the verifier: a sound module that it accepts, and how it is broken."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from spmd.errors import VerificationError
from spmd.hlo import (
    BufferDonor,
    EntryLayout,
    HloComputation,
    HloInstruction,
    HloModule,
    InputOutputAlias,
    Stage,
)
from spmd.ops.attrs import ParameterAttrs
from spmd.shape import PrimitiveType, array
from spmd.sharding import HloSharding
from spmd.text.parser import parse_module
from spmd.verifier import RULES, verify

TEXT = """HloModule t, num_partitions=4

sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT add = f32[] add(x, y)
}

ENTRY main {
  p = f32[4,6] parameter(0)
  q = f32[4,6] parameter(1)
  product = f32[4,6] multiply(p, q)
  total = f32[4,6] all-reduce(product), channel_id=1, replica_groups={{0,1},{2,3}},
    use_global_device_ids=true, to_apply=sum
  moved = f32[4,6] collective-permute(total), channel_id=2, source_target_pairs={{0,1},{1,0}}
  ROOT out = (f32[4,6], f32[4,6]) tuple(moved, product)
}
"""


@pytest.fixture
def module() -> HloModule:
    parsed = parse_module(TEXT)
    parsed.stage = Stage.PARTITIONED
    return parsed


def named(module: HloModule, name: str) -> HloInstruction:
    return next(x for x in module.all_instructions() if x.name == name)


def refused(module: HloModule, code: str, *words: str) -> None:
    """``module`` breaks the rule ``code``, and the message says ``words``."""
    with pytest.raises(VerificationError) as error:
        verify(module)
    problem = error.value.problems[0]
    assert problem.startswith(f"{code} ("), problem
    for word in words:
        assert word in problem


def test_the_sound_module_is_accepted(module: HloModule) -> None:
    verify(module)


def test_statements_are_those_of_the_docstrings() -> None:
    """Invariants stand in the class docstrings; the verifier speaks their words."""
    stated: dict[str, str] = {}
    for kind in (HloInstruction, HloComputation, HloModule):
        for line in inspect.cleandoc(kind.__doc__ or "").splitlines():
            code, _, words = line.strip().partition(" ")
            if len(code) == 2 and code[0] in "ICM" and code[1].isdigit():
                stated[code] = words
    checked = {rule.code: rule.statement for rule in RULES if rule.code in stated}
    assert checked == stated


# ---- graph
def test_i1_users(module: HloModule) -> None:
    named(module, "product")._users.clear()
    refused(module, "I1", "product = f32[4,6] multiply(")


def test_i2_computation(module: HloModule) -> None:
    named(module, "product")._operands[0] = named(module, "x")
    named(module, "x")._users[named(module, "product")] = None
    named(module, "p")._users.clear()
    refused(module, "I2", "product lies outside sum", "x = ")


def test_i3_m2_names(module: HloModule) -> None:
    named(module, "q").name = "p"
    refused(module, "I3", "'p' names several instructions")


def test_m2_computation_names(module: HloModule) -> None:
    module.computations[0].name = "main"
    refused(module, "M2", "'main' names several computations")


def test_i5_control_edges(module: HloModule) -> None:
    named(module, "moved").control_predecessors.append(named(module, "p"))
    refused(module, "I5", "moved = ")


def test_c1_parent(module: HloModule) -> None:
    named(module, "product").parent = None
    refused(module, "C1", "product")


def test_c2_root(module: HloModule) -> None:
    module.entry.root = named(module, "add")
    refused(module, "C2", "add")


def test_c3_parameters(module: HloModule) -> None:
    named(module, "q").attrs = ParameterAttrs(2)
    refused(module, "C3", "[0, 2]")


def test_c4_cycle(module: HloModule) -> None:
    named(module, "product").replace_operand(0, named(module, "moved"))
    refused(module, "C4", "cycle")


def test_m1_order(module: HloModule) -> None:
    module.computations.reverse()
    refused(module, "M1", "sum stands after its caller main")


def test_m1_belongs(module: HloModule) -> None:
    module.computations = [module.entry]
    refused(module, "M1", "sum is not in the module")


def test_m3_entry(module: HloModule) -> None:
    module.computations.pop()
    refused(module, "M3", "main")


# ---- shapes
def test_i4_shape(module: HloModule) -> None:
    named(module, "product").shape = array(PrimitiveType.F32, 4, 7)
    refused(module, "I4", "expected shape f32[4,6], found f32[4,7]", "product = ")


def test_i4_callee(module: HloModule) -> None:
    total = named(module, "total")
    total.called_computations = []
    refused(module, "I4", "calls 1 computations, found 0", "total = ")


# ---- collectives
COLLECTIVES = {
    "replica_groups={{0,1},{1,3}}": ("groups", "two places"),
    "replica_groups={{0,1},{2,4}}": ("groups", "0..3"),
    "replica_groups={{0,1},{2,3}}, source_target_pairs={{0,1},{0,2}}": ("pairs", "source twice"),
    "replica_groups={{0,1},{2,3}}, source_target_pairs={{0,1},{2,1}}": ("pairs", "target twice"),
    "replica_groups={{0,1},{2,3}}, source_target_pairs={{0,9}}": ("pairs", "0..3"),
}


@pytest.mark.parametrize("change", COLLECTIVES)
def test_groups_and_pairs(change: str) -> None:
    groups, _, pairs = change.partition(", ")
    text = TEXT.replace("replica_groups={{0,1},{2,3}}", groups)
    if pairs:
        text = text.replace("source_target_pairs={{0,1},{1,0}}", pairs)
    module = parse_module(text)
    refused(module, *COLLECTIVES[change])


def test_gather_groups_have_one_size() -> None:
    text = """HloModule t, num_partitions=4
ENTRY e {
  a = f32[2] parameter(0)
  ROOT g = f32[4] all-gather(a), dimensions={0}, channel_id=1, replica_groups={{0,1},{2}}, use_global_device_ids=true
}
"""
    refused(parse_module(text), "groups", "different sizes", "g = ")


def test_ids_are_not_judged_before_their_number_is_known() -> None:
    module = parse_module(TEXT.replace(", num_partitions=4", ""))
    assert module.stage is Stage.LOGICAL
    verify(module)


ASYNC = """HloModule t
ENTRY e {
  a = f32[2] parameter(0)
  s = (f32[2], f32[2], u32[]) copy-start(a)
  ROOT d = f32[2] copy-done(s)
}
"""


def test_a_done_completes_its_start() -> None:
    module = parse_module(ASYNC)
    verify(module)
    broken = parse_module(
        ASYNC.replace("copy-start(a)", "tuple(a, a, c)").replace(
            "  s =", "  c = u32[] constant(0)\n  s ="
        )
    )
    refused(broken, "async", "must complete a copy-start, completes s", "d = ")


def test_a_start_is_completed_once() -> None:
    module = parse_module(ASYNC)
    module.stage = Stage.OPTIMIZED
    verify(module)
    module.entry.root = named(module, "a")
    module.entry.remove(named(module, "d"))
    refused(module, "async", "completed 0 times", "s = ")


# ---- stages
def test_shardings_stay_at_the_boundary(module: HloModule) -> None:
    named(module, "p").sharding = HloSharding.replicated()
    named(module, "out").sharding = HloSharding.replicated()
    verify(module)
    named(module, "product").sharding = HloSharding.replicated()
    refused(module, "partitioned", "sharding={replicated}", "product = ")


def test_annotations_are_gone_after_partitioning(module: HloModule) -> None:
    text = TEXT.replace(
        "f32[4,6] multiply(p, q)", 'f32[4,6] custom-call(p), custom_call_target="Sharding"'
    )
    annotated = parse_module(text)
    annotated.stage = Stage.LOGICAL
    verify(annotated)
    annotated.stage = Stage.PARTITIONED
    refused(annotated, "partitioned", "Sharding", "product = ")


def test_a_sharding_has_the_rank_of_its_value() -> None:
    text = TEXT.replace("multiply(p, q)", "multiply(p, q), sharding={devices=[4]<=[4]}")
    module = parse_module(text)
    module.stage = Stage.LOGICAL
    refused(module, "sharding", "has 1 dimensions", "product = ")


def test_a_schedule_is_topological(module: HloModule) -> None:
    module.stage = Stage.SCHEDULED
    verify(module)
    module.entry.set_order(reversed(module.entry.instructions))
    refused(module, "schedule", "runs before", "moved")


# ---- header
def _layout(module: HloModule) -> None:
    module.entry_layout = EntryLayout((array(PrimitiveType.F32, 4, 6),), module.entry.root.shape)


def _wrong_layout(module: HloModule) -> None:
    module.entry_layout = EntryLayout(
        (array(PrimitiveType.F32, 4, 6), array(PrimitiveType.F32, 6)), module.entry.root.shape
    )


def _alias_nowhere(module: HloModule) -> None:
    module.input_output_alias = (InputOutputAlias((2,), 0),)


def _alias_twice(module: HloModule) -> None:
    module.input_output_alias = (InputOutputAlias((0,), 0), InputOutputAlias((1,), 0))


def _donor_nowhere(module: HloModule) -> None:
    module.buffer_donors = (BufferDonor(5),)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (_layout, "entry layout", "lists 1 parameters"),
        (_wrong_layout, "entry layout", "parameter 1"),
        (_alias_nowhere, "alias", "no such output"),
        (_alias_twice, "alias", "aliased already"),
        (_donor_nowhere, "donor", "no such parameter"),
    ],
)
def test_header(
    module: HloModule, change: Callable[[HloModule], None], code: str, words: str
) -> None:
    change(module)
    refused(module, code, words)


def test_an_alias_joins_equal_sizes(module: HloModule) -> None:
    module.input_output_alias = (InputOutputAlias((0,), 0), InputOutputAlias((1,), 1))
    verify(module)
    text = TEXT.replace("tuple(moved, product)", "tuple(moved, total.small)").replace(
        "  ROOT out = (f32[4,6], f32[4,6])",
        "  total.small = f32[4,3] slice(product), slice={[0:4], [0:3]}\n  ROOT out = (f32[4,6], f32[4,3])",
    )
    smaller = parse_module(text)
    smaller.stage = Stage.PARTITIONED
    smaller.input_output_alias = (InputOutputAlias((1,), 1),)
    refused(smaller, "alias", "the output is f32[4,3]")


def test_a_device_takes_part_once_per_slice_that_moves_in_place() -> None:
    """Two starts: each device may send and receive two slices, not three."""
    body = """HloModule m, num_partitions=3
ENTRY e {
  x = f32[8,4] parameter(0)
  y = f32[8,4] parameter(1)
  i = s32[] constant(0)
  s = (s32[], s32[]) tuple(i, i)
  t = ((s32[], s32[]), (s32[], s32[])) tuple(s, s)
  ROOT r = f32[8,4] collective-permute(x, y, t, t), channel_id=1,
    source_target_pairs={{0,1},{1,2},{0,2},{1,0}}, slice_sizes={{2,4},{2,4}}
}"""
    verify(parse_module(body))
    refused(parse_module(body.replace("{1,0}}", "{1,0},{0,0}}")), "pairs", "more than 2 times")
