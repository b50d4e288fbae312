"""The other passes, one after the other: what they change, what they leave."""

from __future__ import annotations

import numpy as np
import pytest
from hlo_expression import expression

from spmd.errors import VerificationError
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule, Opcode, Stage
from spmd.passes.all_passes import SIMPLIFICATION
from spmd.passes.call_inliner import CallInliner
from spmd.passes.common_subexpression_elimination import CommonSubexpressionElimination
from spmd.passes.conditional_simplifier import ConditionalSimplifier
from spmd.passes.constant_folding import ConstantFolding
from spmd.passes.dead_code_elimination import DeadCodeElimination
from spmd.passes.interface import PASSES
from spmd.passes.options import PassOptionError, parse_passes
from spmd.passes.pipeline import Pipeline, run_passes
from spmd.passes.zero_sized_hlo_elimination import ZeroSizedHloElimination
from spmd.text.parser import parse_module
from spmd.verifier import verify

SUM = """
sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT add = f32[] add(x, y)
}
sum.again {
  x.1 = f32[] parameter(0)
  y.1 = f32[] parameter(1)
  ROOT add.1 = f32[] add(x.1, y.1)
}
"""


def entry(body: str, before: str = "") -> HloModule:
    return parse_module(f"HloModule t\n{before}\nENTRY e {{\n{body}\n}}\n")


def names(module: HloModule) -> list[str]:
    return [x.name for x in module.entry.instructions]


# ---- dead code
def test_dead_code_goes_and_side_effects_stay() -> None:
    module = entry(
        """
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  dead = f32[4] negate(b)
  deader = f32[4] negate(dead)
  call = f32[4] custom-call(a), custom_call_target="log", custom_call_has_side_effect=true
  pure = f32[4] custom-call(a), custom_call_target="f"
  l = f32[] constant(0)
  draw = f32[4] rng(l, l), distribution=rng_uniform
  ROOT r = f32[4] negate(a)
""",
        SUM,
    )
    assert DeadCodeElimination().run(module)
    verify(module)
    assert names(module) == ["a", "b", "call", "l", "draw", "r"]
    assert [c.name for c in module.computations] == ["e"]
    assert not DeadCodeElimination().run(module)


# ---- common subexpressions
def test_equal_values_are_computed_once() -> None:
    module = entry(
        """
  a = f32[4] parameter(0)
  z = f32[] constant(0)
  z2 = f32[] constant(0)
  zn = f32[] constant(-0.0)
  s = f32[] reduce(a, z), dimensions={0}, to_apply=sum
  t = f32[] reduce(a, z2), dimensions={0}, to_apply=sum.again
  n = f32[] reduce(a, zn), dimensions={0}, to_apply=sum
  u = f32[] add(s, n)
  v = f32[] add(n, t)
  ROOT r = (f32[], f32[]) tuple(u, v)
""",
        SUM,
    )
    assert CommonSubexpressionElimination().run(module)
    verify(module)
    assert names(module) == ["a", "z", "zn", "s", "n", "u", "r"]


def test_shardings_and_random_numbers_are_not_merged() -> None:
    module = entry("""
  a = f32[4] parameter(0)
  n = f32[4] negate(a), sharding={devices=[2]<=[2]}
  m = f32[4] negate(a), sharding={replicated}
  k = f32[4] negate(a), frontend_attributes={xla.sdy.sharding="x"}
  l = f32[] constant(0)
  d = f32[4] rng(l, l), distribution=rng_uniform
  e1 = f32[4] rng(l, l), distribution=rng_uniform
  ROOT r = (f32[4], f32[4], f32[4], f32[4], f32[4]) tuple(n, m, k, d, e1)
""")
    assert not CommonSubexpressionElimination().run(module)


def test_equal_collectives_on_two_channels_are_one() -> None:
    module = entry(
        """
  a = f32[] parameter(0)
  b = f32[] all-reduce(a), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum
  c = f32[] all-reduce(a), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum.again
  d = f32[] all-reduce(a), channel_id=3, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=sum
  ROOT r = (f32[], f32[], f32[]) tuple(b, c, d)
""",
        SUM,
    )
    assert CommonSubexpressionElimination().run(module)
    assert names(module) == ["a", "b", "d", "r"]


# ---- calls
CALLEES = """
inner {
  x = f32[4] parameter(0)
  ROOT neg = f32[4] negate(x)
}
outer {
  y = f32[4] parameter(0)
  z = f32[4] parameter(1)
  c = f32[4] call(y), to_apply=inner
  ROOT sum = f32[4] add(c, z)
}
same {
  ROOT i = f32[4] parameter(0)
}
"""


def test_calls_are_inlined_in_place_with_their_names() -> None:
    module = entry(
        """
  a = f32[4] parameter(0)
  before = f32[4] abs(a)
  called = f32[4] call(before, a), to_apply=outer
  after = f32[4] sign(called)
  ROOT back = f32[4] call(after), to_apply=same
""",
        CALLEES,
    )
    assert CallInliner().run(module)
    verify(module)
    assert names(module) == ["a", "before", "neg", "sum", "after"]
    assert expression(module.entry.root) == "sign(add(negate(abs(p0)), p0))"
    assert [c.name for c in module.computations] == ["e"]


def test_a_computation_called_twice_is_copied() -> None:
    module = entry(
        """
  a = f32[4] parameter(0)
  b = f32[4] call(a), to_apply=inner
  ROOT c = f32[4] call(b), to_apply=inner
""",
        CALLEES,
    )
    CallInliner().run(module)
    verify(module)
    assert expression(module.entry.root) == "negate(negate(p0))"


def test_uninlineable_calls_may_be_kept() -> None:
    module = entry(
        """
  a = f32[4] parameter(0)
  ROOT c = f32[4] call(a), to_apply=inner, frontend_attributes={inlineable="false"}
""",
        CALLEES,
    )
    assert not CallInliner(keep_uninlineable=True).run(module)
    assert CallInliner().run(module)


def test_control_edges_of_a_call_pass_to_what_it_did() -> None:
    module = entry(
        """
  a = f32[4] parameter(0)
  first = f32[4] abs(a)
  c = f32[4] call(a), to_apply=inner, control-predecessors={first}
  last = f32[4] sign(a), control-predecessors={c}
  ROOT r = (f32[4], f32[4], f32[4]) tuple(first, c, last)
""",
        CALLEES,
    )
    CallInliner().run(module)
    verify(module)
    x = {i.name: i for i in module.entry.instructions}
    assert x["neg"].control_predecessors == [x["first"]]
    assert x["neg"].control_successors == [x["last"]]


# ---- constants
FOLDED = {
    "a = s32[] constant(6); b = s32[] constant(7); s32[] multiply(a, b)": "42",
    "a = f32[3] constant({1,2,3}); f32[3] negate(a)": "[-1.0, -2.0, -3.0]",
    "a = f32[2] constant({1,-1}); b = f32[2] multiply(a, a); f32[2,2] broadcast(b), dimensions={0}": (
        "broadcast(1.0, (), f32[2,2])"
    ),
    "i = s32[4] iota(), iota_dimension=0; t = s32[] constant(2); u = s32[4] broadcast(t), dimensions={}; "
    "pred[4] compare(i, u), direction=LT": "[True, True, False, False]",
    "i = s32[4] iota(), iota_dimension=0; s32[4] add(i, i)": "[0, 2, 4, 6]",
}


@pytest.mark.parametrize("lines", FOLDED)
def test_constants_are_folded(lines: str) -> None:
    *before, last = [line.strip() for line in lines.split(";")]
    module = entry("\n".join([*before, f"ROOT r = {last}"]))
    expected = evaluate(module)
    run_passes(module, parse_passes("constant-folding,algebraic-simplifier,dead-code-elimination"))
    verify(module)
    assert expression(module.entry.root) == FOLDED[lines]
    np.testing.assert_array_equal(evaluate(module), expected)


@pytest.mark.parametrize(
    "last",
    [
        "s32[4] iota(), iota_dimension=0",  # small as it is
        "s32[4000] add(i, i)",  # larger than the bound
        "u32[] partition-id()",
        "s32[4000] constant({...})",
    ],
)
def test_what_is_not_folded(last: str) -> None:
    module = entry(f"i = s32[4000] iota(), iota_dimension=0\nROOT r = {last}")
    assert not ConstantFolding().run(module)


def test_the_bound_is_an_option() -> None:
    text = "i = s32[400] iota(), iota_dimension=0\nROOT r = s32[400] add(i, i)"
    assert not ConstantFolding().run(entry(text))
    assert ConstantFolding(max_bytes=2000).run(entry(text))


def test_empty_arrays_become_constants() -> None:
    module = entry(
        "a = f32[0,4] parameter(0)\nb = f32[0,4] negate(a)\nROOT r = (f32[0,4], f32[0,4]) tuple(a, b)"
    )
    assert ZeroSizedHloElimination().run(module)
    verify(module)
    assert expression(module.entry.root) == "tuple(p0, broadcast(0.0, (), f32[0,4]))"


# ---- conditionals
BRANCHES = """
up {
  x = f32[4] parameter(0)
  ROOT u = f32[4] ceil(x)
}
down {
  x = f32[4] parameter(0)
  ROOT d = f32[4] floor(x)
}
"""


@pytest.mark.parametrize(
    ("selector", "branches", "result"),
    [
        ("pred[] constant(true)", "true_computation=up, false_computation=down", "ceil(p0)"),
        ("pred[] constant(false)", "true_computation=up, false_computation=down", "floor(p0)"),
        ("s32[] constant(0)", "branch_computations={up, down}", "ceil(p0)"),
        ("s32[] constant(-3)", "branch_computations={up, down}", "floor(p0)"),
        ("s32[] parameter(1)", "branch_computations={up, down}", None),
    ],
)
def test_known_branches(selector: str, branches: str, result: str | None) -> None:
    body = (
        f"a = f32[4] parameter(0)\nk = {selector}\nROOT r = f32[4] conditional(k, a, a), {branches}"
    )
    module = entry(body, BRANCHES)
    assert ConditionalSimplifier().run(module) == (result is not None)
    verify(module)
    if result is not None:
        assert expression(module.entry.root) == result


# ---- pipelines
def test_a_pipeline_is_read_and_printed() -> None:
    text = (
        "algebraic-simplifier,constant-folding{max-bytes=64},call-inliner{keep-uninlineable=true}"
    )
    passes = parse_passes(text)
    assert ",".join(map(str, passes)) == text
    assert passes[1] == ConstantFolding(max_bytes=64)
    assert parse_passes("") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no-such-pass", "no pass is named 'no-such-pass'"),
        ("constant-folding{bytes=1}", "no option 'bytes'; options: max-bytes"),
        ("constant-folding{max-bytes=x}", "expected int, found 'x'"),
        ("call-inliner{keep-uninlineable=7}", "true or false"),
        ("constant-folding{max-bytes=1", "expected pass"),
        ("constant-folding constant-folding", "expected pass"),
    ],
)
def test_a_wrong_pipeline_is_refused(text: str, words: str) -> None:
    with pytest.raises(PassOptionError, match=words):
        parse_passes(text)


def test_names_files_and_classes_agree() -> None:
    for name in PASSES:
        kind = PASSES[name]
        stem = name.replace("-", "_")
        assert kind.__module__.rsplit(".", 1)[1] == stem
        assert kind.__name__ == "".join(part.capitalize() for part in name.split("-"))


def test_a_pass_refuses_a_stage_it_does_not_accept() -> None:
    module = entry("ROOT a = f32[4] parameter(0)")
    module.stage = Stage.SCHEDULED
    with pytest.raises(VerificationError, match="dead-code-elimination accepts"):
        Pipeline("once", (DeadCodeElimination(),)).run(module)


def test_passes_report_and_settle() -> None:
    module = entry(
        "a = f32[4] parameter(0)\nb = f32[4] copy(a)\nc = f32[4] negate(b)\nROOT r = f32[4] negate(c)"
    )
    seen: list[tuple[str, bool]] = []
    pipeline = Pipeline("simplification", SIMPLIFICATION, repeated=True)
    assert pipeline.run(module, lambda done: seen.append((done.step.name, done.changed)))
    assert expression(module.entry.root) == "p0"
    assert ("algebraic-simplifier", True) in seen
    assert not any(changed for _, changed in seen[-len(SIMPLIFICATION) :])
    assert not run_passes(module, SIMPLIFICATION)
    assert module.entry.root.opcode is Opcode.PARAMETER
