"""Tests that what is known of a kernel without a plan is what its plan says."""

from __future__ import annotations

import itertools
import math

import pytest

from runtime.fusion.cost.cost_model import CostModel
from runtime.fusion.element_graph import post_order
from runtime.fusion.element_operations import is_element_operation
from runtime.fusion.emitters import LOOP, emitted, emitter_of
from runtime.fusion.kernel_kinds import KernelCosts, KernelKind, KernelKinds
from runtime.fusion.loop_fusion import has_small_loop, loop_fusion
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.machine.named import machine_named
from spmd.text.parser import parse_module
from tests.runtime.fusion.random_fusions import random_fusion


def kind_of(fused: HloComputation, inputs: tuple[HloInstruction, ...] = ()) -> KernelKind:
    """Return the kind of a kernel that computes everything from ``inputs``, else from the parameters."""
    inputs = inputs or fused.parameters
    roots = fused.root.operands if fused.root.opcode is Opcode.TUPLE else (fused.root,)
    order = post_order(roots, dict.fromkeys(inputs, 0))
    members, read = ([x for x in order if (x in inputs) == wanted] for wanted in (False, True))
    return KernelKinds(KernelCosts(CostModel(machine_named()))).kind(
        tuple(roots), dict.fromkeys(members), dict.fromkeys(read)
    )


def members_of(fused: HloComputation) -> list[HloInstruction]:
    quiet = (Opcode.PARAMETER, Opcode.TUPLE)
    return [x for x in fused.instructions if x.opcode not in quiet]


def entry(body: str) -> HloComputation:
    return parse_module(f"HloModule t\nENTRY e {{\n{body}\n}}\n").entry


def test_random_kernels() -> None:
    """Kernels consist of instructions that each have an emitter, as those of a plan do."""
    straight = flat = same = small = 0
    for seed in range(300):
        (fused,) = (c for c in parse_module(random_fusion(seed)).computations if "fused" in c.name)
        kind = kind_of(fused)
        for x in members_of(fused):
            assert not is_element_operation(x) or emitter_of(x) == LOOP
        if not all(map(KernelKinds(kind.costs).has_emitter, members_of(fused))):
            continue
        if kind.emitter == LOOP and "emitted" not in vars(kind):
            small += not kind.straight
            assert kind.emitted is not None
            assert kind.emitted.emitter == LOOP
        if kind.straight and kind.emitter == LOOP:
            straight += 1
            assert kind.emitted is not None
            flat += kind.flat
            planned = frozenset(kind.emitted.plan.overwrites)
            assert kind.overwrites <= planned  # transposes that move nothing are not looked through
            same += kind.overwrites == planned
    assert straight > same > 0.8 * straight > 10
    assert flat
    assert small > 5


def test_two_results_that_seem_to_have_a_small_loop_have_one() -> None:
    """Kernels of results with equally many elements are joined, whatever their sizes are."""
    has_emitter = KernelKinds(KernelCosts(CostModel(machine_named()))).has_emitter
    joined = 0
    for seed in range(2700, 3000):
        (fused,) = (c for c in parse_module(random_fusion(seed)).computations if "fused" in c.name)
        members = members_of(fused)
        if not all(map(has_emitter, members)):
            continue
        arrays = [x for x in members if x.dims and x.opcode is not Opcode.CONSTANT]
        inputs = {p: n for n, p in enumerate(fused.parameters)}
        for one, other in itertools.pairwise(sorted(arrays, key=_size)):
            if _size(one) == _size(other) and has_small_loop((one, other), inputs):
                loop_fusion((one, other), inputs)
                joined += one.dims != other.dims
    assert joined > 20


def _size(x: HloInstruction) -> int:
    return math.prod(x.dims)


FLAT = """
  p = f32[4,6] parameter(0)
  q = f32[4,6] parameter(1)
  s = f32[] parameter(2)
  h = f16[4,6] parameter(3)
  t = f32[] negate(s)
  b = f32[4,6] broadcast(t), dimensions={}
  w = f32[4,6] convert(h)
  a = f32[4,6] multiply(p, b)
  c = f32[4,6] add(a, w)
  d = f32[4,6] subtract(q, c)
  ROOT r = (f32[4,6], f32[4,6]) tuple(c, d)"""


def test_a_flat_kernel_may_overwrite_what_is_as_large() -> None:
    kind = kind_of(entry(FLAT))
    assert kind.flat
    assert kind.emitted is not None
    assert kind.overwrites == frozenset(kind.emitted.plan.overwrites)
    assert {(n, kind.inputs[k].name) for n, k in kind.overwrites} == {
        (n, name) for n in (0, 1) for name in "pq"
    }


@pytest.mark.parametrize(
    "last",
    [
        "t = f32[6,4] reshape(n)\n  ROOT r = f32[24] reshape(t)",
        "t = f32[24] reshape(n)\n  u = f32[4,6] reshape(t)\n  ROOT r = f32[4,6] add(n, u)",
        "t = f32[2,12] reshape(n)\n  ROOT r = f32[12,2] transpose(t), dimensions={1,0}",
    ],
)
def test_of_reshapes_a_plan_is_made(last: str) -> None:
    fused = entry(f"  p = f32[4,6] parameter(0)\n  n = f32[4,6] negate(p)\n  {last}")
    kind = kind_of(fused)
    assert not kind.straight
    assert kind.emitter == emitted(fused).emitter


def test_numbers_that_no_line_gives_after_a_reshape_have_no_loop() -> None:
    """Index vectors of two shapes, as scatters have them, are not joined in one kernel.

    i0 counts 0, 1, 0, 1 along 8 elements.
    """
    fused = entry(
        "  p = s32[1,8,1] parameter(0)\n"
        "  q = s32[1,4,2,1] reshape(p)\n"
        "  i0 = s32[1,4,2,1] iota(), iota_dimension=2\n"
        "  i1 = s32[1,8,1] iota(), iota_dimension=1\n"
        "  a = s32[1,8,2] concatenate(i1, p), dimensions={2}\n"
        "  b = s32[1,4,2,2] concatenate(i0, q), dimensions={3}\n"
        "  ROOT r = (s32[1,8,2], s32[1,4,2,2]) tuple(a, b)"
    )
    kind = kind_of(fused)
    assert emitter_of(fused) is None
    assert kind.emitter is None


def test_rows_of_three_and_their_sums_are_not_written_by_one_kernel() -> None:
    """One loop cannot write them either, as it can where all results are sums."""
    rows = (
        "  p = f32[64,3] parameter(0)\n"
        "  a = f32[64,3] multiply(p, p)\n"
        "  z = f32[] constant(0)\n"
        "  s = f32[64] reduce(a, z), dimensions={1}, to_apply=add\n"
        "  t = f32[64] sqrt(s)\n"
    )
    add = "add { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT r = f32[] add(x, y) }\n"
    for root, emitter in (
        ("(f32[64,3], f32[64]) tuple(a, t)", None),
        ("(f32[64], f32[64]) tuple(s, t)", "reduce"),
    ):
        text = f"HloModule t\n{add}ENTRY e {{\n{rows}  ROOT r = {root}\n}}\n"
        assert kind_of(parse_module(text).entry).emitter == emitter


def test_an_array_constant_that_is_an_input_is_read_like_any_other() -> None:
    """The transposed constant is another array, so that two elements are read."""
    fused = entry(
        "  c = f32[2,2] constant({{1, 2}, {3, 4}})\n"
        "  t = f32[2,2] transpose(c), dimensions={1,0}\n  ROOT r = f32[2,2] add(c, t)"
    )
    (constant,) = fused.with_opcode(Opcode.CONSTANT)
    kind = kind_of(fused, (constant,))
    assert kind.emitted is not None
    assert kind.overwrites == frozenset()
    assert len(kind.emitted.plan.pieces[0].graph.leaves) == 2  # type: ignore[union-attr]
