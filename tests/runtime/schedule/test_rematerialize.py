"""Rematerialization: what is repeated, what is not, and that the model's peak falls within the budget."""

from __future__ import annotations

from functools import partial

import pytest

from collectives.schedule.checker import check_schedule
from runtime import emit as _emit  # noqa: F401 - what may be done in place
from runtime.schedule.memory_model import MemoryModel
from runtime.schedule.recompute import Limits
from runtime.schedule.recompute_cost import recompute_cost
from runtime.schedule.rematerialize import Budget, Rematerializer
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.text.parser import parse_module
from tests.strategies import generate

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

ANYTHING = Limits(only_cheap=False, most_links=16)


def kept(operation: str = "multiply(x, x)", late: str = "multiply(kept, x)") -> HloModule:
    return parse_module(KEPT.replace("OPERATION", operation).replace("LATE", late))


def run(
    module: HloModule, budget: Budget | None = None, limits: Limits | None = None, goal: int = 0
) -> tuple[int, int]:
    """(peak before, peak after), as the model sees them."""
    one = Rematerializer(
        module.entry,
        partial(MemoryModel, module.entry, {}),
        budget or Budget(),
        limits or Limits(),
    )
    before = one.peak
    one.lower(goal or before - 1)
    order = module.entry.instructions
    assert one.peak == MemoryModel(module.entry, {}).peak(order)
    stage, module.stage = module.stage, Stage.SCHEDULED
    check_schedule(module)
    module.stage = stage
    return before, one.peak


def repeated(module: HloModule, name: str = "kept") -> list[HloInstruction]:
    return [i for i in module.entry.instructions if i.name.startswith(f"{name}.")]


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
def test_dear_values_and_those_whose_operands_die_are_kept_unless_asked(
    operation: str, late: str
) -> None:
    module = kept(operation, late)
    before, after = run(module)
    assert after == before
    assert not repeated(module)
    asked = kept(operation, late)
    assert run(asked, limits=ANYTHING) == (before, before - 4096)
    assert repeated(asked) or repeated(asked, "x")


def test_what_is_read_through_views_is_repeated_with_them() -> None:
    module = parse_module(
        KEPT.replace("OPERATION", "multiply(x, x)")
        .replace("LATE", "multiply(shown, x)")
        .replace(
            "  late =",
            "  wide = f32[32,32] reshape(kept)\n  shown = f32[1024] reshape(wide)\n  late =",
        )
    )
    before, after = run(module)
    assert after == before - 4096
    (copy,) = repeated(module)
    (view,) = copy.users
    assert view.opcode is Opcode.RESHAPE
    late = module.entry.root.operand(0)
    assert late.operand(0).operand(0) is view


def test_a_chain_is_computed_again_as_far_as_its_operands_are_gone() -> None:
    """At the peak after the forward chain, x1 to x3 wait for their readers.

    Only p and x4 need to be there.
    """
    module = parse_module("""HloModule chain
ENTRY main {
  p = f32[1024] parameter(0)
  x1 = f32[1024] sine(p)
  x2 = f32[1024] exponential(x1)
  x3 = f32[1024] tanh(x2)
  x4 = f32[1024] cosine(x3)
  y = f32[1024,8] broadcast(x4), dimensions={0}
  z = f32[1024,8] exponential(y)
  w = f32[1024,1] slice(z), slice={[0:1024], [0:1]}
  s = f32[1024] reshape(w)
  g3 = f32[1024] multiply(s, x3)
  g2 = f32[1024] multiply(g3, x2)
  ROOT g1 = f32[1024] multiply(g2, x1)
}
""")
    before, after = run(module, limits=ANYTHING, goal=9 * 4096)
    assert before == 12 * 4096
    assert after == 9 * 4096
    assert len(repeated(module, "x1")) + len(repeated(module, "x2")) >= 2


def test_what_nobody_reads_early_is_computed_later_and_not_again() -> None:
    module = parse_module("""HloModule early
ENTRY main {
  p = f32[1024] parameter(0)
  early = f32[1024] multiply(p, p)
  a = f32[1024] sine(p)
  b = f32[1024] exponential(a)
  c = f32[1024] multiply(a, b)
  ROOT r = f32[1024] multiply(c, early)
}
""")
    before, after = run(module)
    assert after < before
    names = [i.name for i in module.entry.instructions]
    assert "early" not in names
    assert sum(i.opcode is Opcode.MULTIPLY for i in module.entry.instructions) == 3


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
    before, after = run(module, goal=1)
    assert after == before
    assert str(module) == text


@pytest.mark.parametrize(
    "line",
    [
        "x = f32[8] all-gather(p), dimensions={0}, replica_groups={{0}}",
        "x = f32[8] rng(a, b), distribution=rng_uniform",
        'x = f32[8] custom-call(p), custom_call_target="anything"',
        "x = f32[8] constant({1,2,3,4,5,6,7,8})",
        "x = f32[8] sine(p), control-predecessors={p}",
    ],
)
def test_what_has_no_price(line: str) -> None:
    module = parse_module(
        f"HloModule m\nENTRY main {{\n  p = f32[8] parameter(0)\n  a = f32[] constant(0)\n  b = f32[] constant(1)\n"
        f"  {line}\n  ROOT r = f32[8] negate(x)\n}}\n"
    )
    named = {i.name: i for i in module.entry.instructions}
    assert recompute_cost(named["x"]) is None
    price = recompute_cost(named["r"])
    assert price is not None
    assert price.flops == 8


def _same(model: MemoryModel) -> MemoryModel:
    return model


@pytest.mark.parametrize("seed", range(8))
def test_the_model_follows_every_edit(seed: int) -> None:
    """Taken back or not: afterwards it says what a new one says."""
    for computation in generate(seed).module.computations_post_order():
        model = MemoryModel(computation, {})
        one = Rematerializer(computation, partial(_same, model), Budget(), ANYTHING)
        for share in (0.9, 0.7, 0.5):
            one.lower(int(one.peak * share))
            fresh = MemoryModel(computation, {})
            order = computation.instructions
            assert model.reads == fresh.reads
            assert model.size == fresh.size
            assert {i: set(s) for i, s in model.sources.items()} == {
                i: set(s) for i, s in fresh.sources.items()
            }
            assert {i: n for i, n in model.readers.items() if n} == fresh.readers
            assert model.needs(order) == fresh.needs(order)
