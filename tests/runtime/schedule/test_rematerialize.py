"""Rematerialization: what is repeated, what is not, and that the model's peak falls within the budget."""

from __future__ import annotations

from functools import partial

import pytest

from runtime.schedule.memory_model import MemoryModel
from runtime.schedule.rematerialize import Budget, find_repeats, rematerialize
from spmd.hlo import HloInstruction, HloModule
from spmd.text.parser import parse_module

#: ``kept`` is made before the peak and read once more behind it; x is live all the way.
KEPT = """HloModule kept
ENTRY main {
  p = f32[1024] parameter(0)
  x = f32[1024] sine(p)
  kept = f32[1024] OPERATION
  a = f32[1024] negate(kept)
  b = f32[1024] exponential(a)
  c = f32[1024] tanh(b)
  d = f32[1024] multiply(b, c)
  e = f32[1024] multiply(d, a)
  f = f32[1024] multiply(e, c)
  late = f32[1024] LATE
  ROOT r = f32[1024] add(late, f)
}
"""

AMPLE = Budget(1e9, 1e9)


def kept(operation: str = "multiply(x, x)", late: str = "multiply(kept, x)") -> HloModule:
    return parse_module(KEPT.replace("OPERATION", operation).replace("LATE", late))


def run(module: HloModule, budget: Budget = AMPLE) -> tuple[int, int]:
    """(peak before, peak after), as the model sees them."""
    make_model = partial(MemoryModel, module.entry, {})
    before = make_model().peak(module.entry.instructions)
    after = rematerialize(module.entry, make_model, Budget(budget.flops, budget.bytes))
    assert after == make_model().peak(module.entry.instructions)
    return before, after


def repeated(module: HloModule) -> list[HloInstruction]:
    return [i for i in module.entry.instructions if i.name.startswith("kept.")]


def test_a_cheap_value_is_made_again_for_its_late_reader() -> None:
    module = kept()
    before, after = run(module)
    assert after == before - 4096
    (copy,) = repeated(module)
    order = [i.name for i in module.entry.instructions]
    assert order.index(copy.name) == order.index("late") - 1
    assert [user.name for user in copy.users] == ["late"]


@pytest.mark.parametrize(
    ("operation", "late"),
    [
        ("exponential(x)", "multiply(kept, x)"),  # not cheap
        ("multiply(x, x)", "negate(kept)"),  # x would have to live longer instead
    ],
)
def test_dear_values_and_those_whose_operands_die_are_kept(operation: str, late: str) -> None:
    module = kept(operation, late)
    before, after = run(module)
    assert after == before
    assert not repeated(module)


@pytest.mark.parametrize("budget", [Budget(1023, 1e9), Budget(1e9, 100)])
def test_nothing_is_repeated_beyond_the_budget(budget: Budget) -> None:
    module = kept()
    text = str(module)
    run(module, budget)
    assert str(module) == text


def test_a_round_that_lowers_nothing_is_taken_back() -> None:
    """Four values are live at b and again at v, where ``kept`` is gone in any case."""
    module = parse_module("""HloModule two_peaks
ENTRY main {
  p = f32[1024] parameter(0)
  x = f32[1024] sine(p)
  kept = f32[1024] multiply(x, x)
  a = f32[1024] exponential(kept)
  b = f32[1024] tanh(a)
  s = f32[1024] multiply(a, b)
  late = f32[1024] multiply(kept, s)
  u = f32[1024] exponential(late)
  v = f32[1024] tanh(u)
  w = f32[1024] multiply(u, v)
  y = f32[1024] multiply(w, x)
  ROOT z = f32[1024] multiply(y, late)
}
""")
    text = str(module)
    model = MemoryModel(module.entry, {})
    chosen = find_repeats(model, module.entry.instructions, 4096, Budget(1e9, 1e9))
    assert [repeat.value.name for repeat in chosen] == ["kept"]
    before, after = run(module)
    assert after == before
    assert str(module) == text
