"""Calls of fused attention, expanded, against the reference evaluation of the call; and run by the CPU back end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from launch.options import CompileOptions
from launch.pipeline import compile_module
from spmd.evaluator import evaluate
from spmd.hlo import HloModule, Opcode
from spmd.ops.attrs import DotAttrs
from spmd.passes.attention_expander import AttentionExpander
from spmd.text.parser import parse_module
from spmd.verifier import verify
from tests.spmd.library_calls.attention.calls import (
    BF16,
    F16,
    F32,
    NVTE_MASKS,
    Array,
    Call,
    Problem,
    cudnn_pair,
    transformer_engine_pair,
)

#: Relative and absolute errors: probabilities are rounded to the operands' type before they are multiplied by values.
TOLERANCE = {F32: 2e-6, F16: 4e-3, BF16: 3e-2}

CUDNN = [
    Problem(),
    Problem(mask="CAUSAL"),
    Problem(mask="CAUSAL", s=9, t=4, heads_first=True),
    Problem(mask="CAUSAL", window=2),
    Problem(window=3),
    Problem(mask="CAUSAL", window=2, s=8, t=3),
    Problem(mask="PADDING"),
    Problem(mask="PADDING_CAUSAL", h=6, b=3),
    Problem(h=6),
    Problem(h=6, mask="CAUSAL", heads_first=True, e=3),
    Problem(h=3, g=1, e=5),
    Problem(bias=(1, 2)),
    Problem(bias=(2, 2), heads_first=True),
    Problem(bias=(1, 1), h=4),
    Problem(bias=(2, 4), h=4, mask="CAUSAL"),
    Problem(bias=(1, 4), h=4, mask="PADDING"),
    Problem(b=1, h=1, g=1, s=1, t=1, bias=(1, 1)),
    *(Problem(kind, "CAUSAL", h=4, bias=(1, 4), s=17, t=19) for kind in (F16, BF16)),
    *(Problem(kind, "PADDING", heads_first=True, s=17, t=19) for kind in (F16, BF16)),
]
NVTE = [
    *(Problem(mask=mask) for mask in NVTE_MASKS),
    *(Problem(mask=mask, h=6, b=3, t=5) for mask in NVTE_MASKS),
    *(Problem(kind, "CAUSAL", h=4, s=17, t=19) for kind in (F16, BF16)),
]


def expanded(call: Call) -> HloModule:
    module = parse_module(call.text)
    assert AttentionExpander().run(module)
    verify(module)
    assert not any(module.entry.with_opcode(Opcode.CUSTOM_CALL))
    return module


def check(found: Sequence[Array], wanted: Sequence[Array], tolerance: float) -> None:
    for x, y in zip(found, wanted, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(
            x.astype(np.float64), y.astype(np.float64), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("problem", CUDNN, ids=str)
def test_cudnn(problem: Problem) -> None:
    for call in cudnn_pair(problem):
        found = evaluate(expanded(call), *call.arguments)
        check(found, call.evaluated(), TOLERANCE[problem.kind])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("problem", NVTE, ids=str)
def test_transformer_engine(problem: Problem, packed: bool) -> None:
    for call in transformer_engine_pair(problem, packed=packed):
        found = evaluate(expanded(call), *call.arguments)
        check(found, call.evaluated(), TOLERANCE[problem.kind])


def test_a_query_that_sees_no_key() -> None:
    """Its result is zero, the logarithm of its sum of exponentials -inf, and it has no gradient."""
    forward, backward = cudnn_pair(Problem(mask="CAUSAL", window=2, s=8, t=3))
    out, statistics, _ = evaluate(expanded(forward), *forward.arguments)
    assert not out[:, :, 4:].any()
    assert (statistics[:, :, 4:] == -np.inf).all()
    assert np.isfinite(statistics[:, :, :4]).all()
    dq, *_ = evaluate(expanded(backward), *backward.arguments)
    assert not dq[:, :, 4:].any()


@pytest.mark.parametrize("heads_first", [False, True])
def test_keys_and_values_are_read_as_they_are(heads_first: bool) -> None:
    """Products have batch and group dimensions: keys and values are neither repeated nor transposed."""
    for call in cudnn_pair(Problem(h=6, heads_first=heads_first)):
        module = expanded(call)
        products = module.entry.with_opcode(Opcode.DOT)
        keys, values = module.entry.parameters[1:3]
        assert [x.opcode for x in keys.users if x.opcode is not Opcode.DOT] == []
        assert [x.opcode for x in values.users if x.opcode is not Opcode.DOT] == []
        assert {len(x.attrs_as(DotAttrs).lhs_batch) for x in products} == {2}


@pytest.mark.parametrize(
    "problem",
    [
        Problem(mask="CAUSAL", h=4, s=33, t=33),
        Problem(mask="PADDING", h=4, bias=(1, 4), s=21, t=35),
        Problem(BF16, mask="CAUSAL", h=4, s=33, t=40, heads_first=True),
        Problem(F16, mask="PADDING_CAUSAL", s=33, t=33),
    ],
    ids=str,
)
def test_the_cpu_runs_the_expansion(problem: Problem) -> None:
    pairs = [cudnn_pair(problem)]
    if problem.bias is None and not problem.heads_first:
        pairs += [transformer_engine_pair(problem, packed=packed) for packed in (False, True)]
    for call in (call for pair in pairs for call in pair):
        executable = compile_module(parse_module(call.text), 1, CompileOptions(partitioned=True))
        assert not any(executable.module.entry.with_opcode(Opcode.CUSTOM_CALL))
        check(executable.run(*call.arguments), call.evaluated(), TOLERANCE[problem.kind])


def test_a_schedule_is_kept() -> None:
    forward, _ = cudnn_pair(Problem(mask="CAUSAL"))
    text = forward.text.replace("HloModule attention", "HloModule attention, is_scheduled=true")
    executable = compile_module(parse_module(text), 1)
    check(executable.run(*forward.arguments), forward.evaluated(), TOLERANCE[F32])
