"""Attention and its gradients become fusions without score matrices in memory, which compute the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from runtime.fusion.attention.attention_fusion import AttentionFusion
from spmd.analysis.fusion_emitter import is_attention
from spmd.device import ReductionKind
from spmd.evaluator import evaluate_partitions
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.hlo.clone import clone_module
from spmd.passes.fuel import Fuel
from spmd.shape import ArrayShape, PrimitiveType
from spmd.text.parser import parse_module
from spmd.verifier import verify
from tests.paths import TESTS
from tests.runtime.fusion.attention.attention_programs import (
    BF16,
    F32,
    Attention,
    AttentionWriter,
    attention_module,
    ring_module,
)
from tests.runtime.fusion.attention.contract import mode_of
from tests.spmd.passes.triggers.check import compare, random_inputs

CASES = {
    "no_mask": Attention(),
    "causal": Attention(mask="causal"),
    "window": Attention(mask="window"),
    "segments": Attention(mask="segments"),
    "pred": Attention(mask="pred"),
    "bias": Attention(bias="matrix", gradients=False),
    "alibi": Attention(bias="alibi", mask="causal"),
    "cap": Attention(cap=30.0, mask="causal"),
    "grouped": Attention(groups=2, heads=3, mask="causal"),
    "dropout": Attention(dropout=0.25, mask="causal"),
    "quotient": Attention(quotient=True, mask="causal"),
    "wide": Attention(features=33, depth=64, rows=5, columns=7),
}


def attention_fusions(module: HloModule) -> list[HloInstruction]:
    return [x for x in module.entry.instructions if is_attention(x)]


def matrices(module: HloModule, case: Attention) -> list[str]:
    """Return the instructions outside of fusions that have all rows and columns of scores."""
    return [
        x.name
        for x in module.entry.instructions
        if isinstance(x.shape, ArrayShape)
        and {case.rows, case.columns} <= set(x.dims)
        and x not in module.entry.parameters
    ]


def fused(module: HloModule) -> HloModule:
    """Return a copy of ``module`` after the pass. Both must compute the same within rounding."""
    copy = clone_module(module)
    verify(copy)
    assert AttentionFusion().run(copy)
    verify(copy)
    inputs = random_inputs(module, np.random.default_rng(1), edges=False)
    compare(module, inputs, evaluate_partitions(module, inputs), evaluate_partitions(copy, inputs))
    return copy


@pytest.mark.parametrize("kind", [F32, BF16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_attention_is_fused(name: str, kind: object) -> None:
    case = replace(CASES[name], kind=kind)
    module = fused(attention_module(case))
    assert matrices(module, case) == []
    modes = sorted(map(mode_of, attention_fusions(module)))
    assert modes == (["columns", "online", "rows"] if case.gradients else ["online"])
    assert not AttentionFusion().run(module), "a second run finds nothing"


@pytest.mark.parametrize("name", ["grouped", "bias", "keys_first"])
def test_fusions_of_programs_that_jax_writes(name: str) -> None:
    text = (TESTS / "hlo" / "passes" / f"attention_fusion_{name}.hlo").read_text()
    module = parse_module(text)
    module.stage = Stage.PARTITIONED
    found = fused(module)
    assert sorted(map(mode_of, attention_fusions(found))) == ["columns", "online", "rows"]


@pytest.mark.parametrize("kind", [F32, BF16], ids=str)
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_a_block_of_a_ring_is_two_fusions(mask: str, kind: object) -> None:
    """The exponentials need the largest score of all blocks, so this is known before the sums and the product."""
    case = replace(Attention(mask=mask), kind=kind)
    module = fused(ring_module(case))
    assert matrices(module, case) == []
    assert [mode_of(x) for x in attention_fusions(module)] == ["rows", "rows"]


def test_scores_whose_largest_are_chosen_stay_in_memory() -> None:
    """A router of experts has a softmax over scores that a TopK reads, whose result is a tuple."""
    module = parse_module("""HloModule router
        max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] maximum(a, b) }
        sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
        ENTRY main {
          x = f32[16,8] parameter(0)
          gate = f32[8,4] parameter(1)
          v = f32[4,8] parameter(2)
          scores = f32[16,4] dot(x, gate), lhs_contracting_dims={1}, rhs_contracting_dims={0}
          least = f32[] constant(-inf)
          m = f32[16] reduce(scores, least), dimensions={1}, to_apply=max
          rows = f32[16,4] broadcast(m), dimensions={0}
          shifted = f32[16,4] subtract(scores, rows)
          e = f32[16,4] exponential(shifted)
          zero = f32[] constant(0)
          l = f32[16] reduce(e, zero), dimensions={1}, to_apply=sum
          sums = f32[16,4] broadcast(l), dimensions={0}
          p = f32[16,4] divide(e, sums)
          top = (f32[16,2], s32[16,2]) custom-call(p), custom_call_target="TopK"
          values = f32[16,2] get-tuple-element(top), index=0
          o = f32[16,8] dot(p, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
          ROOT result = (f32[16,8], f32[16,2]) tuple(o, values)
        }""")
    module.stage = Stage.PARTITIONED
    assert not AttentionFusion().run(module)


def test_a_gradient_through_maxima_never_divides_by_no_positions() -> None:
    """Another kernel computes the scores again, perhaps with other roundings, and compares them with the maxima."""
    case = Attention(through_maxima=True)
    module = fused(attention_module(case))
    assert matrices(module, case) == []
    modes = sorted(map(mode_of, attention_fusions(module)))
    assert modes == ["columns", "online", "rows", "rows"]
    (count,) = (x for x in module.entry.instructions if x.opcode is Opcode.MAXIMUM)
    assert {user.opcode for user in count.users} == {Opcode.DIVIDE}
    rows = count.operand(0)
    assert rows.opcode is Opcode.GET_TUPLE_ELEMENT
    assert is_attention(rows.operand(0))


def unchanged(writer: AttentionWriter, results: list[HloInstruction]) -> bool:
    module = writer.finish(results)
    text = str(module)
    return not AttentionFusion().run(module) and str(module) == text


def test_weights_that_are_needed_stay_in_memory() -> None:
    writer = AttentionWriter(Attention())
    results = writer.attention()
    weights = next(x for x in writer.b.computation.instructions if x.opcode is Opcode.DIVIDE)
    assert unchanged(writer, [*results, weights])


def test_scores_that_are_compared_with_those_of_others_stay_in_memory() -> None:
    """Weights of the largest scores alone: they would differ if the scores were rounded in another way."""
    writer = AttentionWriter(Attention(gradients=False))
    b = writer.b
    (output,) = writer.attention()
    (product,) = (x for x in output.operands if x.opcode is not Opcode.PARAMETER)
    largest = next(b.computation.with_opcode(Opcode.REDUCE))
    is_largest = b.compare(largest.operand(0), writer.rows(largest), "EQ")
    values = output.operand(1 - output.operands.index(product))
    hard = writer.product(b.convert(is_largest, F32), values, 3, 2, F32)
    assert unchanged(writer, [output, hard])


def test_a_bias_whose_gradient_is_wanted_stays_in_memory() -> None:
    """The gradient of a bias per position is itself a matrix of rows and columns."""
    case = Attention(bias="matrix")
    writer = AttentionWriter(case)
    results = writer.attention()
    subtracted = [x for x in writer.b.computation.instructions if x.opcode is Opcode.MULTIPLY]
    gradient = writer.b.reduce(subtracted[-1], (0,), ReductionKind.SUM)
    assert unchanged(writer, [*results, gradient])


def test_scores_that_become_integers_stay_in_memory() -> None:
    """The conversion saturates, which no kernel of attention does."""
    writer = AttentionWriter(Attention(gradients=False))
    b = writer.b
    results = writer.attention()
    (scores,) = (x for x in b.computation.with_opcode(Opcode.DOT) if x is not results[0])
    (scaled,) = scores.users
    whole = b.convert(b.convert(scores, PrimitiveType.S32), F32)
    b.computation.replace(scaled, whole)
    assert unchanged(writer, results)


def test_fusions_of_second_derivatives_make_no_cycle() -> None:
    """Sinks that do not depend on each other may do so through the other sinks of their fusions."""
    module = parse_module((TESTS / "hlo" / "passes" / "attention_fusion_second.hlo").read_text())
    module.stage = Stage.PARTITIONED
    modes = [mode_of(x) for x in attention_fusions(fused(module))]
    assert sorted(modes) == ["columns", "columns", "online", "rows", "rows", "rows", "rows", "rows"]


def test_one_query_has_no_rows() -> None:
    writer = AttentionWriter(Attention(rows=1))
    assert unchanged(writer, writer.attention())


@pytest.mark.parametrize("kind", [PrimitiveType.F64, PrimitiveType.F16], ids=str)
def test_types_of_products(kind: PrimitiveType) -> None:
    """Products of f16 are fused, and those of f64 are not."""
    module = attention_module(Attention(kind=kind, gradients=False))
    if kind is PrimitiveType.F16:
        assert list(map(mode_of, attention_fusions(fused(module)))) == ["online"]
    else:
        assert not AttentionFusion().run(module)


def test_less_fuel_makes_fewer_fusions() -> None:
    """Every number of rewrites leaves a module that means the same."""
    module = attention_module(Attention(mask="causal"))
    for limit in range(5):
        copy = clone_module(module)
        AttentionFusion().rewrite(copy, Fuel(limit))
        verify(copy)
        assert len(attention_fusions(copy)) == max(0, limit - 1), "a row sum is rewritten first"
        inputs = random_inputs(module, np.random.default_rng(1), edges=False)
        compare(
            module, inputs, evaluate_partitions(module, inputs), evaluate_partitions(copy, inputs)
        )
