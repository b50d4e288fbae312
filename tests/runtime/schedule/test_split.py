"""Tests of computing in pieces: each way to split an operation gives its numbers, and large values are never whole."""

from __future__ import annotations

from functools import partial
from itertools import islice

import numpy as np
import pytest

from collectives.schedule.checker import check_schedule
from runtime.compile import build_executable, schedule_module
from runtime.device_program import MemoryLimitError
from runtime.schedule import split_region
from runtime.schedule.live_ranges import LiveRanges
from runtime.schedule.memory_fit import REPEATING, SPLITTING, Road, fit_memory
from runtime.schedule.memory_model import MemoryModel
from runtime.schedule.recompute_cost import RecomputeCost
from runtime.schedule.rematerialize import Budget, Rematerializer
from runtime.schedule.split_edit import SplitEdit
from runtime.schedule.split_region import Region, RegionSearch
from spmd.analysis.split_rules import Along, ways_to_split
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode, Stage
from spmd.hlo.clone import clone_module
from spmd.verifier.verifier import verify
from tests.runtime.programs.build import module_of, random_inputs
from tests.strategies import generate

#: Scores of 8 heads, four times as large as everything else together.
ATTENTION = """HloModule attention
sum {
  a = f64[] parameter(0)
  b = f64[] parameter(1)
  ROOT r = f64[] add(a, b)
}
most {
  a = f64[] parameter(0)
  b = f64[] parameter(1)
  ROOT r = f64[] maximum(a, b)
}
ENTRY main {
  q = f64[8,64,16] parameter(0)
  k = f64[8,64,16] parameter(1)
  v = f64[8,64,16] parameter(2)
  s = f64[8,64,64] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  low = f64[] constant(-inf)
  zero = f64[] constant(0)
  m = f64[8,64] reduce(s, low), dimensions={2}, to_apply=most
  ms = f64[8,64,64] broadcast(m), dimensions={0,1}
  d = f64[8,64,64] subtract(s, ms)
  e = f64[8,64,64] exponential(d)
  z = f64[8,64] reduce(e, zero), dimensions={2}, to_apply=sum
  zs = f64[8,64,64] broadcast(z), dimensions={0,1}
  p = f64[8,64,64] divide(e, zs)
  ROOT o = f64[8,64,16] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
}
"""

#: Two layers with a wide middle, and the gradient, which needs the middle again after what follows it.
WIDE = """HloModule wide
ENTRY main {
  x = f64[64,8] parameter(0)
  w = f64[8,256] parameter(1)
  u = f64[256,8] parameter(2)
  h = f64[64,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f64[64,256] tanh(h)
  y = f64[64,8] dot(t, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y3 = f64[64,8] multiply(y, y)
  dt = f64[64,256] dot(y3, u), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  t2 = f64[64,256] multiply(t, t)
  dh = f64[64,256] multiply(dt, t2)
  du = f64[256,8] dot(t, y3), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  dw = f64[8,256] dot(x, dh), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  dx = f64[64,8] dot(dh, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT r = (f64[64,8], f64[8,256], f64[256,8]) tuple(dx, dw, du)
}
"""

#: One operation for each rule, for the place of {} in RULES.
OPERATIONS = [
    "f64[4,6] add(a, b)",
    "f64[4,6] select(less_b, a, b)",
    "f64[4,6] clamp(low, a, high)",
    "f32[4,6] convert(a)",
    "f64[4,6] copy(a)",
    "f64[4,2,6] broadcast(a), dimensions={0,2}",
    "s32[4,6] iota(), iota_dimension=1",
    "f64[6,4] transpose(a), dimensions={1,0}",
    "f64[4,6] reverse(a), dimensions={1}",
    "f64[24] reshape(a)",
    "f64[2,2,6] reshape(a)",
    "f64[2,12] reshape(a)",
    "f64[4,3] slice(a), slice={[0:4], [1:6:2]}",
    "f64[4,2] dynamic-slice(a, i, i), dynamic_slice_sizes={4,2}",
    "f64[4,6] dynamic-update-slice(a, narrow, i, i)",
    "f64[4,9] pad(a, low), padding=0_0x1_2",
    "f64[4,12] concatenate(a, b), dimensions={1}",
    "f64[4,6] sort(a), dimensions={1}, to_apply=less",
    "f64[4,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "f64[4,2,2] dot(c, d), lhs_batch_dims={1}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}",
    "f64[4,4,6] convolution(image, kernel), window={size=3 pad=1_1}, dim_labels=b0f_0io->bf0",
    "f64[4] reduce(a, zero), dimensions={1}, to_apply=sum",
    "f64[] reduce(a, zero), dimensions={0,1}, to_apply=sum",
    "f64[6] reduce(a, lowest), dimensions={0}, to_apply=most",
    "f64[6] reduce(a, low), dimensions={0}, to_apply=sum",
]

RULES = """HloModule rules
sum {{
  x = f64[] parameter(0)
  y = f64[] parameter(1)
  ROOT r = f64[] add(x, y)
}}
most {{
  x = f64[] parameter(0)
  y = f64[] parameter(1)
  ROOT r = f64[] maximum(x, y)
}}
less {{
  x = f64[] parameter(0)
  y = f64[] parameter(1)
  ROOT r = pred[] compare(x, y), direction=LT
}}
ENTRY main {{
  a = f64[4,6] parameter(0)
  b = f64[4,6] parameter(1)
  c = f64[2,4,3] parameter(2)
  d = f64[4,2,3] parameter(3)
  image = f64[4,6,2] parameter(4)
  kernel = f64[3,2,4] parameter(5)
  narrow = f64[4,3] parameter(6)
  low = f64[] constant(-0.5)
  high = f64[] constant(0.5)
  zero = f64[] constant(0)
  lowest = f64[] constant(-inf)
  i = s32[] constant(2)
  less_b = pred[4,6] compare(a, b), direction=LT
  ROOT one = {}
}}
"""


def in_pieces(one: HloInstruction, along: Along, pieces: int) -> Region:
    """Return a region of this instruction alone."""
    return Region(pieces, (one,), 0, {one: along}, (one,), RecomputeCost(), 0)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_way_to_cut_an_operation_gives_its_numbers(operation: str) -> None:
    text = RULES.format(operation)
    module = module_of(text)
    inputs = random_inputs(module)
    want = evaluate(module, *inputs)
    ways = ways_to_split(module.entry.root)
    assert ways
    for number, along in enumerate(ways):
        copy = module_of(text)
        root = copy.entry.root
        sizes = [
            operand.dims[dim]
            for operand, dim in zip(root.operands, along.operands, strict=True)
            if dim is not None
        ]
        sizes += [root.dims[along.result]] if along.result is not None else []
        pieces = 3 if all(size % 3 == 0 for size in sizes) else 2
        if any(size % pieces for size in sizes):
            continue
        lives = LiveRanges(MemoryModel(copy.entry, {}), copy.entry.post_order())
        edit = SplitEdit(lives, in_pieces(root, ways_to_split(root)[number], pieces))
        edit.keep()
        verify(copy)
        assert sum(i.opcode is root.opcode for i in copy.entry.instructions) >= pieces
        for got, expected in zip(evaluate(copy, *inputs), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_a_sum_that_starts_from_something_is_not_cut_where_it_sums() -> None:
    module = module_of(RULES.format(OPERATIONS[-1]))
    assert {along.result for along in ways_to_split(module.entry.root)} == {0}


def narrow_sum(kind: str) -> HloModule:
    return module_of(
        f"HloModule m\nENTRY e {{\n  a = {kind}[4,6] parameter(0)\n"
        f"  ROOT r = {kind}[6,6] dot(a, a), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}\n}}\n"
    )


def test_sums_in_narrow_types_are_not_cut() -> None:
    """Each piece's sum would be rounded."""
    assert None in {along.result for along in ways_to_split(narrow_sum("f32").entry.root)}
    assert None not in {along.result for along in ways_to_split(narrow_sum("bf16").entry.root)}


def fitted(text: str, road: Road) -> HloModule:
    module = schedule_module(module_of(text))
    fit_memory(module, 1, (road,))
    return module


def bytes_of(module: HloModule) -> int:
    assignment = build_executable(clone_module(module)).program.assignment
    return sum(allocation.size for allocation in assignment.allocations)


@pytest.mark.parametrize(("text", "saved"), [(ATTENTION, 3 * 2**17), (WIDE, 2**17)])
def test_a_large_middle_is_never_whole(text: str, saved: int) -> None:
    """The split module passes the checkers, gives the same numbers, and needs fewer bytes by about the middle."""
    whole, split = fitted(text, REPEATING), fitted(text, SPLITTING)
    assert bytes_of(split) <= bytes_of(whole) - saved // 2
    verify(split)
    check_schedule(split)
    inputs = random_inputs(module_of(text))
    executable = build_executable(split)
    for got, want in zip(executable.run(*inputs), evaluate(module_of(text), *inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * np.abs(want).max())


def test_a_refusal_counts_with_pieces() -> None:
    """The limit that the refusal names can be met only by computing in pieces."""
    with pytest.raises(MemoryLimitError) as refusal:
        build_executable(module_of(ATTENTION), memory_limit=1)
    named = int(str(refusal.value).split("--memory-limit ")[1].split(" ")[0])
    assert named < bytes_of(fitted(ATTENTION, REPEATING))
    build_executable(module_of(ATTENTION), memory_limit=named)


def largest(computation: HloComputation) -> HloInstruction:
    return max(computation.instructions, key=lambda i: i.shape.byte_size)


def test_what_is_taken_back_leaves_nothing() -> None:
    module = module_of(WIDE)
    text, order = str(module), module.entry.instructions
    model = MemoryModel(module.entry, {})
    needs = model.needs(order)
    one = largest(module.entry)
    edit = SplitEdit(LiveRanges(model, order), in_pieces(one, ways_to_split(one)[0], 4))
    assert str(module) != text
    edit.undo()
    assert str(module) == text
    assert model.needs(order) == needs


def test_activations_come_in_pieces_where_they_are_read_again() -> None:
    """t is computed for the forward pass, and again in pieces for the gradients."""
    module = module_of(WIDE)
    one = Rematerializer(
        module.entry, partial(MemoryModel, module.entry, {}), Budget(), SPLITTING[0]
    )
    before = one.peak
    one.lower(before // 4)
    assert one.peak < before
    assert one.peak == MemoryModel(module.entry, {}).peak(module.entry.instructions)
    module.stage = Stage.SCHEDULED
    check_schedule(module)
    whole = [i for i in module.entry.instructions if i.opcode is Opcode.TANH]
    assert all(i.dims != (64, 256) for i in whole) or len(whole) > 1


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_regions_of_random_programs_give_their_numbers(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each region that the search finds keeps the numbers, however little it frees, and can be undone."""
    monkeypatch.setattr(split_region, "LEAST_SHARE", 0.0)
    program = generate(seed)
    entry, inputs = program.module.entry, program.inputs()
    entry.set_order(entry.post_order())
    text, model = str(program.module), MemoryModel(entry, {})
    want = evaluate(program.module, *inputs)
    for top in range(0, len(entry), 1 + len(entry) // 6):
        lives = LiveRanges(model, entry.instructions)
        for region in islice(RegionSearch().at(lives, top), 4):
            edit = SplitEdit(lives, region)
            verify(program.module)
            assert_legal(edit.order)
            for got, expected in zip(evaluate(program.module, *inputs), want, strict=True):
                assert_close(got, expected)
            edit.undo()
            assert str(program.module) == text


def assert_legal(order: list[HloInstruction]) -> None:
    place = {instruction: n for n, instruction in enumerate(order)}
    for instruction in order:
        for before in (*instruction.operands, *instruction.control_predecessors):
            assert place[before] < place[instruction]


def assert_close(got: np.ndarray, want: np.ndarray) -> None:
    """Assert that differences are small beside the largest number.

    Infinities and nans must be in the same places.
    """
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    x, y = got.astype(wide), want.astype(wide)
    finite = np.isfinite(y)
    np.testing.assert_array_equal(np.isfinite(x), finite)
    atol = 1e-4 * np.abs(y[finite]).max(initial=1e-6)
    np.testing.assert_allclose(x[finite], y[finite], rtol=1e-4, atol=atol)
