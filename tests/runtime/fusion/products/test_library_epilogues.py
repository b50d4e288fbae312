"""On a GPU a product joins the kernels that a library computes in the same call, and no others."""

from __future__ import annotations

import pytest

from runtime.fusion.priority_fusion import PriorityFusion
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.machine.named import machine_named
from spmd.verifier import verify
from tests.runtime.programs.build import module_of

GPU, CPU = "dgx-h200", "cpu-avx512"

#: Two weights of one size are updated: small kernels of equal sizes would merge.
UPDATES = """
  x = f32[32,24] parameter(0)
  g = f32[32,16] parameter(1)
  h = f32[32,16] parameter(2)
  p = f32[24,16] parameter(3)
  q = f32[24,16] parameter(4)
  c = f32[] constant(0.5)
  cs = f32[24,16] broadcast(c), dimensions={}
  d = f32[24,16] dot(x, g), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  e = f32[24,16] dot(x, h), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ds = f32[24,16] multiply(d, cs)
  es = f32[24,16] multiply(e, cs)
  pn = f32[24,16] subtract(p, ds)
  qn = f32[24,16] subtract(q, es)
  ROOT t = (f32[24,16], f32[24,16]) tuple(pn, qn)
"""

#: A layer with an epilogue, which is in the last lines.
LAYER = """
  x = {kind}[64,32] parameter(0)
  w = {kind}[32,48] parameter(1)
  b = {kind}[48] parameter(2)
  r = {kind}[64,48] parameter(3)
  s = {kind}[64] parameter(4)
  c = {kind}[] constant({zero})
  z = {kind}[64,48] broadcast(c), dimensions={{}}
  bs = {kind}[64,48] broadcast(b), dimensions={{1}}
  ss = {kind}[64,48] broadcast(s), dimensions={{0}}
  d = {kind}[64,48] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  {body}
"""


def layer_of(body: str, kind: str) -> str:
    zero = "(0, 0)" if kind == "c64" else "0"
    return LAYER.format(kind=kind, zero=zero, body=body.format(kind=kind))


def fused(body: str, machine: str) -> HloModule:
    module = module_of(f"HloModule t\n\nENTRY e {{{body}}}\n")
    PriorityFusion(machine=machine_named(machine)).run(module)
    verify(module)
    return module


def fusions_of_products(module: HloModule) -> list[HloInstruction]:
    fusions = [x for x in module.entry.instructions if x.opcode is Opcode.FUSION]
    return [x for x in fusions if any(y.opcode is Opcode.DOT for y in x.to_apply.instructions)]


def test_updates_stay_apart() -> None:
    found = fusions_of_products(fused(UPDATES, GPU))
    assert len(found) == 2
    assert all(x.name.startswith("gemm_subtract_fusion") for x in found)


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16", "f64"])
@pytest.mark.parametrize(
    "body",
    [
        "ROOT o = {kind}[64,48] add(d, bs)",
        "a = {kind}[64,48] add(d, bs)\n  ROOT o = {kind}[64,48] maximum(a, z)",
        "ROOT o = {kind}[64,48] subtract(r, d)",
    ],
)
def test_joined(body: str, kind: str) -> None:
    layer = layer_of(body, kind)
    assert len(fusions_of_products(fused(layer, GPU))) == 1


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("ROOT o = {kind}[64,48] add(d, ss)", "f32"),
        ("ROOT o = {kind}[64,48] tanh(d)", "f32"),
        ("ROOT o = {kind}[64,48] add(d, bs)", "f8e4m3fn"),
        ("ROOT o = {kind}[64,48] add(d, bs)", "c64"),
        ("ROOT o = {kind}[64,48] add(d, bs)", "s32"),
        (  # the product is read twice
            "a = {kind}[64,48] add(d, bs)\n  ROOT o = ({kind}[64,48], {kind}[64,48]) tuple(a, d)",
            "f32",
        ),
    ],
)
def test_apart(body: str, kind: str) -> None:
    layer = layer_of(body, kind)
    assert not fusions_of_products(fused(layer, GPU))


def test_a_sum_that_is_read_again_is_the_result_of_the_call() -> None:
    """One kernel of the maximum and of the sum would read the product, and write both."""
    layer = layer_of(
        "a = f32[64,48] add(d, bs)\n  m = f32[64,48] maximum(a, z)\n"
        "  ROOT o = (f32[64,48], f32[64,48]) tuple(a, m)",
        "f32",
    )
    (fusion,) = fusions_of_products(fused(layer, GPU))
    assert fusion.to_apply.root.opcode is Opcode.ADD


def test_processors_do_as_before() -> None:
    """A processor computes any function of a block, and another result as well."""
    layer = layer_of(
        "a = f32[64,48] tanh(d)\n  ROOT o = (f32[64,48], f32[64,48]) tuple(a, d)", "f32"
    )
    (fusion,) = fusions_of_products(fused(layer, CPU))
    assert {x.opcode for x in fusion.to_apply.instructions} >= {Opcode.DOT, Opcode.TANH}


#: One of two layers, whose weights are stacked.
SLICED = """
  x = f32[64,512] parameter(0)
  ws = f32[2,512,512] parameter(1)
  i = s32[] parameter(2)
  o = s32[] constant(0)
  s = f32[1,512,512] dynamic-slice(ws, i, o, o), dynamic_slice_sizes={1,512,512}
  w = f32[512,512] reshape(s)
  ROOT d = f32[64,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
"""


def test_slices_are_copied_for_a_library() -> None:
    assert not fusions_of_products(fused(SLICED, GPU))
    assert len(fusions_of_products(fused(SLICED, CPU))) == 1


#: The weight p is updated, and written in place, after a sum over devices that starts behind the gradient's product.
BEHIND_A_SUM = """HloModule t, input_output_alias={{ {{0}}: (0, {{}}, may-alias) }}

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
  p = f32[24,16] parameter(0)
  x = f32[32,24] parameter(1)
  g = f32[32,16] parameter(2)
  l = f32[64] parameter(3)
  d = f32[24,16] dot(x, g), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  {before}
  s = f32[64] all-reduce(l), replica_groups={{{{0,1}}}}, to_apply=sum
  {after}
  n = f32[24,16] subtract(p, d)
  ROOT t = (f32[24,16], f32[64], f32[16,16]) tuple(n, s, r)
}}
"""
READ = "r = f32[16,16] dot(p, p), lhs_contracting_dims={0}, rhs_contracting_dims={0}"


def behind_a_sum(**reads: str) -> HloModule:
    text = BEHIND_A_SUM.format(**{"before": "", "after": "", **reads})
    module = module_of(text)
    PriorityFusion(machine=machine_named(GPU)).run(module)
    verify(module)
    return module


def test_a_product_stays_before_a_collective_and_its_epilogue_comes_there() -> None:
    module = behind_a_sum(before=READ)
    (update,) = fusions_of_products(module)
    opcodes = [x.opcode for x in module.entry.instructions]
    assert module.entry.instructions.index(update) < opcodes.index(Opcode.ALL_REDUCE)


def test_an_update_does_not_move_before_what_reads_the_weight() -> None:
    """It would need a copy of the weight, which it overwrites."""
    assert not fusions_of_products(behind_a_sum(after=READ))
