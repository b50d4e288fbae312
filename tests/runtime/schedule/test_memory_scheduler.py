"""The memory scheduler: legal orders, never worse than the order that stands, better where order matters."""

from __future__ import annotations

import time

import pytest

from collectives.schedule.checker import check_schedule
from runtime.compile import schedule_module
from runtime.schedule.memory_model import MemoryModel
from runtime.schedule.memory_scheduler import followed, hot
from runtime.schedule.module_model import ModuleModel
from runtime.schedule.orders import as_it_stands, candidate_orders, postponed, spliced
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.text.parser import parse_module
from tests.runtime.programs import ALIASING, compiled, module_of
from tests.strategies import generate

#: Written breadth first: four large values at a time. Depth first needs two.
WIDE = """HloModule wide
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY main {
  x = f32[] parameter(0)
  z = f32[] constant(0)
  b = f32[1024] broadcast(x), dimensions={}
  a0 = f32[1024] sine(b)
  a1 = f32[1024] cosine(b)
  a2 = f32[1024] exponential(b)
  a3 = f32[1024] tanh(b)
  r0 = f32[] reduce(a0, z), dimensions={0}, to_apply=sum
  r1 = f32[] reduce(a1, z), dimensions={0}, to_apply=sum
  r2 = f32[] reduce(a2, z), dimensions={0}, to_apply=sum
  r3 = f32[] reduce(a3, z), dimensions={0}, to_apply=sum
  t0 = f32[] add(r0, r1)
  t1 = f32[] add(r2, r3)
  ROOT t = f32[] add(t0, t1)
}
"""

#: The weight's update is ready before its last reader has run; placed after it, it needs no copy.
UPDATE_FIRST = """HloModule update_first, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY main {
  w = f32[512] parameter(0)
  g = f32[512] parameter(1)
  w2 = f32[512] subtract(w, g)
  y = f32[512] multiply(w, g)
  z = f32[512] exponential(y)
  ROOT t = (f32[512], f32[512]) tuple(w2, z)
}
"""


#: The product for the end is ready before the long way round, whose large values it would outlive.
EARLY = """HloModule early
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY main {
  x = f32[1024] parameter(0)
  z = f32[] constant(0)
  y = f32[1024] sine(x)
  early = f32[1024] multiply(x, x)
  a0 = f32[1024] add(y, x)
  a1 = f32[1024] exponential(a0)
  a2 = f32[1024] multiply(a1, a0)
  total = f32[] reduce(a2, z), dimensions={0}, to_apply=sum
  all = f32[1024] broadcast(total), dimensions={}
  ROOT t = f32[1024] add(early, all)
}
"""


def order_of(module: HloModule) -> list[str]:
    return [i.name for i in module.entry.instructions]


def test_order_that_needs_less_memory() -> None:
    before = compiled(WIDE, keep_order=True).stats.temp
    after = compiled(WIDE).stats.temp
    assert before >= 4 * 4096
    assert after < 2 * 4096


def test_what_is_needed_late_is_made_late() -> None:
    order = order_of(schedule_module(module_of(EARLY)))
    assert order.index("total") < order.index("early")


def test_postponing_moves_only_what_holds_more_than_it_frees() -> None:
    module = module_of(EARLY)
    model = MemoryModel(module.entry, {})
    before = followed(model)
    stands = as_it_stands(model, before)
    names = [i.name for i in postponed(model, before, stands) if i.name != "z"]
    assert names == ["x", "y", "a0", "a1", "a2", "total", "early", "all", "t"]


def test_an_update_waits_for_the_last_reader() -> None:
    module = schedule_module(module_of(UPDATE_FIRST))
    order = order_of(module)
    assert order.index("y") < order.index("w2")
    assert compiled(UPDATE_FIRST).stats.temp == 0
    assert compiled(UPDATE_FIRST, keep_order=True).stats.temp == 2048


def test_an_order_goes_on_as_another_after_its_peak() -> None:
    module = module_of(EARLY)
    model = MemoryModel(module.entry, {})
    before = followed(model)
    orders = [as_it_stands(model, before), postponed(model, before, as_it_stands(model, before))]
    needs = [[1, 1, 9, 9, 9, 9, 9, 9, 9, 9], [9, 10, 1, 1, 1, 1, 1, 1, 1, 1]]
    assert len(needs[0]) == len(orders[0])
    got = spliced(orders, needs)
    assert got[:3] == orders[0][:3]
    assert got[3:] == [i for i in orders[1] if i not in got[:3]]


def test_stage_and_idempotence() -> None:
    module = schedule_module(module_of(WIDE))
    assert module.stage is Stage.SCHEDULED
    order = order_of(module)
    assert order_of(schedule_module(module)) == order


def test_control_dependencies_are_kept() -> None:
    module = module_of(WIDE)
    by_name = {i.name: i for i in module.entry.instructions}
    by_name["r3"].add_control_dependency_to(by_name["a0"])
    schedule_module(module)
    check_schedule(module)
    order = order_of(module)
    assert order.index("r3") < order.index("a0")


def test_same_module_same_order() -> None:
    assert order_of(schedule_module(module_of(WIDE))) == order_of(schedule_module(module_of(WIDE)))


def test_every_heuristic_gives_a_legal_order() -> None:
    for seed in range(20):
        module = generate(seed).module
        for computation in module.computations_post_order():
            model = MemoryModel(computation, {})
            orders = list(candidate_orders(model, followed(model)).values())
            needs = [model.needs(order) for order in orders]
            for order in (*orders, spliced(orders, needs)):
                assert_legal(order, computation.instructions)


def assert_legal(order: list[HloInstruction], instructions: tuple[HloInstruction, ...]) -> None:
    position = {instruction: i for i, instruction in enumerate(order)}
    assert len(order) == len(instructions) == len(position)
    for instruction in instructions:
        for before in (*instruction.operands, *instruction.control_predecessors):
            assert position[before] < position[instruction]


@pytest.mark.parametrize("name", ALIASING)
def test_never_worse_than_the_order_that_stands(name: str) -> None:
    """The model's own measure counts, which is what the scheduler minimizes."""
    module = module_of(ALIASING[name])
    model = MemoryModel(module.entry, {})
    stands = model.peak(list(module.entry.instructions))
    schedule_module(module)
    assert MemoryModel(module.entry, {}).peak(list(module.entry.instructions)) <= stands


def chain_of_sums(count: int) -> HloModule:
    lines = ["HloModule long", "ENTRY main {", "  x0 = f32[8] parameter(0)"]
    lines += [f"  x{i} = f32[8] add(x{i - 1}, x{i // 2})" for i in range(1, count)]
    lines[-1] = "  ROOT " + lines[-1].strip()
    return parse_module("\n".join([*lines, "}"]))


def test_time_grows_about_linearly() -> None:
    """Four times the instructions take less than twelve times as long (a quadratic algorithm: sixteen).

    Of the large one a second measurement counts too: collections of garbage that other tests have made may be in one.
    """

    def seconds(count: int) -> float:
        module = chain_of_sums(count)
        module.stage = Stage.OPTIMIZED
        start = time.process_time()
        schedule_module(module)
        return time.process_time() - start

    most = 12 * max(min(seconds(2000) for _ in range(2)), 0.01)
    assert seconds(8000) < most or seconds(8000) < most


#: The loop needs 4,096 bytes while 32,768 are held for later, and its condition a few.
HELD_OVER_A_LOOP = """HloModule held_over_a_loop
body {
  s = (s32[], f32[512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[512] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[512] sine(x)
  z = f32[512] cosine(x)
  w = f32[512] add(y, z)
  ROOT t = (s32[], f32[512]) tuple(next, w)
}
more {
  s = (s32[], f32[512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT l = pred[] compare(i, n), direction=LT
}
ENTRY main {
  y = f32[8192] parameter(0)
  zero = s32[] constant(0)
  held = f32[8192] exponential(y)
  x = f32[512] slice(held), slice={[512:1024]}
  s = (s32[], f32[512]) tuple(zero, x)
  l = (s32[], f32[512]) while(s), condition=more, body=body
  last = f32[512] get-tuple-element(l), index=1
  first = f32[512] slice(held), slice={[0:512]}
  ROOT r = f32[512] add(last, first)
}
"""


def test_a_loops_body_counts_with_what_is_held_around_it() -> None:
    module = schedule_module(parse_module(HELD_OVER_A_LOOP))
    models = ModuleModel(module)
    models.simulate()
    (loop,) = [x for x in module.entry.instructions if x.opcode is Opcode.WHILE]
    totals = models.totals()
    assert totals[loop.while_body] >= 32768 + models.peaks[loop.while_body]
    assert hot(models) == {module.entry, loop.while_body}
