"""Tests of kernels that update a block of an array.

They compute and write the block alone, and do so in place where the array dies.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from runtime.compile import build_executable, schedule_module
from runtime.fusion.emitters import LOOP, emitter_of
from runtime.fusion.priority_fusion import PriorityFusion
from runtime.program.records.loop import UpdateKernel
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule, Opcode, Stage
from spmd.text.parser import parse_module
from tests.runtime.cpu.kernels.loop.element_signatures import canonical
from tests.runtime.fusion.reasons import why_not
from tests.runtime.fusion.test_loop_fusions import edge_inputs, kernels
from tests.runtime.programs.build import compiled, module_of

DONATED = ", input_output_alias={ {}: (0, {}, may-alias) }"


def update(seed: int, header: str = "") -> str:
    """Return a random update of an array of any rank, at starts that are read or computed, and may be outside.

    Some blocks are seen transposed.
    """
    dice = random.Random(seed)
    whole = [dice.choice((1, 2, 3, 5, 8, 17)) for _ in range(dice.randrange(1, 4))]
    block = [dice.randrange(1, n + 1) for n in whole]
    kind = dice.choice(("f32", "bf16", "s32", "pred", "f64"))
    operation = "xor" if kind == "pred" else "subtract"
    order = dice.sample(range(len(block)), len(block))
    turned = [block[d] for d in order]
    back = [order.index(d) for d in range(len(block))]

    def shape(dims: list[int]) -> str:
        return f"{kind}[{','.join(map(str, dims))}]"

    start_kind = dice.choice(("s32", "u32", "s8"))
    starts = [f"k{dice.randrange(2)}" for _ in whole]
    body = [
        f"p = {shape(whole)} parameter(0)",
        f"q = {shape(turned)} parameter(1)",
        f"i = {start_kind}[] parameter(2)",
        f"k0 = {start_kind}[] add(i, i)",
        f"k1 = {start_kind}[] parameter(3)",
        f"t = {shape(turned)} {operation}(q, q)",
        f"b = {shape(block)} transpose(t), dimensions={{{','.join(map(str, back))}}}",
        f"c = {shape(block)} transpose(q), dimensions={{{','.join(map(str, back))}}}",
        f"u = {shape(block)} {operation}(b, c)",
        f"d = {shape(whole)} dynamic-update-slice(p, u, {', '.join(starts)})",
    ]
    result = shape(whole)
    if dice.random() < 0.3:
        result = shape([int(np.prod(whole))])
        body.append(f"r = {result} reshape(d)")
        header = ""
    fused = "\n  ".join(body).replace(f"{body[-1]}", f"ROOT {body[-1]}")
    return f"""HloModule m{header}

fused {{
  {fused}
}}

ENTRY e {{
  p = {shape(whole)} parameter(0)
  q = {shape(turned)} parameter(1)
  i = {start_kind}[] parameter(2)
  j = {start_kind}[] parameter(3)
  ROOT f = {result} fusion(p, q, i, j), kind=kLoop, calls=fused
}}
"""


def check(text: str, seed: int) -> None:
    executable = compiled(text)
    (kernel,) = kernels(executable)
    assert isinstance(kernel, UpdateKernel)
    inputs = edge_inputs(executable.module, seed)
    inputs[2:] = [np.array(seed % 7 - 2).astype(x.dtype) for x in inputs[2:]]
    with np.errstate(all="ignore"):
        wanted = evaluate(module_of(text), *inputs)
    for got, want in zip(executable.run(*inputs), wanted, strict=True):
        assert canonical(got) == canonical(want), text


@pytest.mark.parametrize("header", ["", DONATED])
def test_random_updates(header: str) -> None:
    """The updated array is still needed, so that it is copied first, or it dies."""
    for seed in range(25):
        check(update(seed, header), seed)


def test_an_array_that_dies_is_not_copied() -> None:
    text = next(t for seed in range(9) if "reshape" not in (t := update(seed, DONATED)))
    assert compiled(text).stats.temp == 0


READ_BESIDE = """HloModule m

fused {
  p = f32[8] parameter(0)
  i = s32[] parameter(1)
  a = f32[2] slice(p), slice={[0:2]}
  ROOT d = f32[8] dynamic-update-slice(p, a, i)
}

ENTRY e {
  p = f32[8] parameter(0)
  i = s32[] parameter(1)
  ROOT f = f32[8] fusion(p, i), kind=kLoop, calls=fused
}
"""


COMPUTED = READ_BESIDE.replace("update-slice(p, a", "update-slice(n, a").replace(
    "  a = f32[2]", "  n = f32[8] negate(p)\n  a = f32[2]"
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (READ_BESIDE, "a block is changed of what is read"),
        (COMPUTED, "d changes what is computed here"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    assert why_not(module_of(text).entry.root) == reason


STACK = """HloModule t
body {
  state = (s32[], f32[8,512], f32[512]) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  all = f32[8,512] get-tuple-element(state), index=1
  x = f32[512] get-tuple-element(state), index=2
  one = s32[] constant(1)
  next = s32[] add(n, one)
  zero = s32[] constant(0)
  e = f32[512] exponential(x)
  y = f32[512] negate(e)
  row = f32[1,512] reshape(y)
  more = f32[8,512] dynamic-update-slice(all, row, n, zero)
  ROOT out = (s32[], f32[8,512], f32[512]) tuple(next, more, x)
}
until {
  state = (s32[], f32[8,512], f32[512]) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  last = s32[] constant(8)
  ROOT go = pred[] compare(n, last), direction=LT
}
ENTRY e {
  x = f32[512] parameter(0)
  n = s32[] constant(0)
  z = f32[] constant(0)
  all = f32[8,512] broadcast(z), dimensions={}
  state = (s32[], f32[8,512], f32[512]) tuple(n, all, x)
  done = (s32[], f32[8,512], f32[512]) while(state), condition=until, body=body
  ROOT r = f32[8,512] get-tuple-element(done), index=1
}
"""


def scheduled() -> HloModule:
    module = parse_module(STACK)
    module.stage = Stage.OPTIMIZED
    schedule_module(module)
    return module


def test_what_a_loop_stacks_is_computed_where_it_goes() -> None:
    module = scheduled()
    PriorityFusion().run(module)
    fusions = [x for x in module.all_instructions() if x.opcode is Opcode.FUSION]
    (update_fusion,) = (f for f in fusions if f.dims == (8, 512))
    opcodes = {x.opcode for x in update_fusion.to_apply.instructions}
    assert {Opcode.EXPONENTIAL, Opcode.NEGATE, Opcode.DYNAMIC_UPDATE_SLICE} <= opcodes
    assert emitter_of(update_fusion) == LOOP
    x = np.linspace(-1, 1, 512, dtype=np.float32)
    (want,) = evaluate(scheduled(), x)
    (got,) = build_executable(module).run(x)
    np.testing.assert_allclose(got, want, rtol=1e-6)
