"""Steps in pieces: by hand, and against schedules of random pieces, none of which is shorter."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

import pytest

from collectives.cost.estimator import CollectiveTime, LinkUse
from collectives.passes.exchange_region import exchange_ways, region_ways
from collectives.simulate.least_step import LeastStep, least_step
from collectives.simulate.one_machine import Job, least_end
from spmd.analysis.split_rules import Along
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.text.parser import parse_module
from tests.collectives.simulate.scheduled import TableEstimator

_PIECES = 8


def wire(seconds: float, latency: float = 0.0) -> CollectiveTime:
    return CollectiveTime(
        seconds, "ring", (LinkUse("wire", 1.0, seconds - latency),), latency=latency
    )


def module_of(lines: str, root: str, computations: str = "") -> HloModule:
    """``lines``: dot(a, b) of f32[8,8] sums over the last of a and the first of b."""
    lines = lines.replace("dot!", "f32[8,8] dot").replace("add!", "f32[8,8] add")
    done = []
    for line in lines.strip().splitlines():
        more = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}" if " dot(" in line else ""
        if " sum!(" in line:
            line = line.replace("sum!", "f32[8,8] all-reduce")
            more = (
                ", channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum"
            )
        done.append("  " + line.strip() + more)
    return parse_module(
        "HloModule m, is_scheduled=true, num_partitions=2\n"
        "sum {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n}\n"
        f"{computations}ENTRY main {{\n  w = f32[8,8] parameter(0)\n  v = f32[8,8] parameter(1)\n"
        + "\n".join(done)
        + f"\n  ROOT r = {root}\n}}\n"
    )


def least(lines: str, root: str, kernels: dict[str, float], sent: dict[str, float]) -> LeastStep:
    times = {name: wire(seconds) for name, seconds in sent.items()}
    return least_step(module_of(lines, root), TableEstimator(kernels, times))


def test_what_is_sent_waits_for_an_eighth_of_its_product() -> None:
    found = least("a = dot!(w, v)\ng = sum!(a)", "(f32[8,8]) tuple(g)", {"a": 8.0}, {"g": 16.0})
    assert (found.seconds, found.what, found.idle) == (17.0, "wire", 1.0)
    assert (found.waiting, found.hideable) == (24.0, 7.0)


def test_a_product_may_begin_with_an_eighth_of_what_is_sent() -> None:
    found = least("g = sum!(w)\na = dot!(g, v)", "(f32[8,8]) tuple(a)", {"a": 8.0}, {"g": 16.0})
    assert (found.seconds, found.idle) == (17.0, 1.0)


def test_a_gradient_waits_for_all_that_it_sums_over() -> None:
    """b sums over the rows of a's result, and so over all of the rows that a's pieces could be; over columns, none."""
    rows = "a = dot!(w, v)\nb = f32[8,8] dot(a, a)\ng = sum!(b)"
    text = {"a": 8.0, "b": 8.0}
    found = least(rows, "(f32[8,8]) tuple(g)", text, {"g": 16.0})
    assert found.seconds == 8.0 + 1.0 + 16.0


def test_pieces_go_through_products_that_agree_on_a_dimension() -> None:
    found = least(
        "a = dot!(w, v)\nb = dot!(a, v)\ng = sum!(b)\nc = dot!(g, v)",
        "(f32[8,8]) tuple(c)",
        {"a": 8.0, "b": 8.0, "c": 8.0},
        {"g": 32.0},
    )
    assert found.seconds == 1.0 + 1.0 + 32.0 + 1.0


def test_compute_takes_longer_while_the_link_takes_processors() -> None:
    module = module_of("a = dot!(w, v)\ng = sum!(w)", "(f32[8,8], f32[8,8]) tuple(a, g)")
    found = least_step(module, TableEstimator({"a": 8.0}, {"g": wire(4.0)}), {"wire": 0.25})
    assert (found.seconds, found.what, found.idle) == (9.0, "compute", 1.0)


def test_each_piece_takes_a_latency() -> None:
    module = module_of("g = sum!(w)\na = dot!(g, v)", "(f32[8,8]) tuple(a)")
    found = least_step(module, TableEstimator({"a": 16.0}, {"g": wire(9.0, latency=1.0)}))
    assert (found.seconds, found.what) == (2.0 + 16.0, "compute")


_LOOP = """body {
  b = (s32[], f32[8,8]) parameter(0)
  k = s32[] get-tuple-element(b), index=0
  one = s32[] constant(1)
  next = s32[] add(k, one)
  x = f32[8,8] get-tuple-element(b), index=1
  a = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[8,8] all-reduce(a), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum
  ROOT out = (s32[], f32[8,8]) tuple(next, g)
}
cond {
  c = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(TRIPS)
  ROOT less = pred[] compare(i, n), direction=LT
}
"""


@pytest.mark.parametrize("most", [60_000, 1])
def test_trips_of_a_loop_follow_one_another(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Each needs all of the last one's result; where not all are written out, less is known, but no work is lost."""
    monkeypatch.setattr("collectives.simulate.cut_graph.MOST_NODES", most)
    lines = "zero = s32[] constant(0)\nt = (s32[], f32[8,8]) tuple(zero, w)\n"
    lines += "l = (s32[], f32[8,8]) while(t), condition=cond, body=body"
    module = module_of(
        lines, "f32[8,8] get-tuple-element(l), index=1", _LOOP.replace("TRIPS", "10")
    )
    found = least_step(module, TableEstimator({"a": 8.0}, {"g": wire(16.0)}))
    trip = 1.0 + 16.0
    assert found.waiting == 240.0
    if most > 1:
        assert found.seconds == 10 * trip
    else:
        assert 160.0 < found.seconds <= 10 * trip


def by_subsets(jobs: list[Job]) -> float:
    sets = itertools.chain.from_iterable(
        itertools.combinations(jobs, n) for n in range(1, len(jobs) + 1)
    )
    return max(
        min(j.head for j in some) + sum(j.seconds for j in some) + min(j.tail for j in some)
        for some in sets
    )


@pytest.mark.parametrize("seed", range(30))
def test_the_preemptive_schedule_is_the_largest_of_all_sets(seed: int) -> None:
    dice = random.Random(seed)
    jobs = [
        Job(dice.randrange(12), dice.randrange(1, 6), dice.randrange(12))
        for _ in range(dice.randrange(1, 8))
    ]
    assert least_end(jobs) == by_subsets(jobs)


# ---- random pieces
@dataclass
class Pieces:
    """Every instruction cut somehow, or whole; its pieces on their resource as they become ready, in random order."""

    module: HloModule
    estimator: TableEstimator
    dice: random.Random
    ways: dict[HloInstruction, tuple[Along | None, int]] = field(default_factory=dict)

    def cut(self) -> None:
        for x in self.module.entry.instructions:
            ways = exchange_ways(x) if x.opcode is Opcode.ALL_REDUCE else region_ways(x)
            if ways and self.dice.random() < 0.8:
                self.ways[x] = self.dice.choice(ways), self.dice.choice((2, 4, _PIECES))
            else:
                self.ways[x] = None, 1

    def needed(self, x: HloInstruction, number: int) -> list[tuple[HloInstruction, int]]:
        along, count = self.ways[x]
        found = []
        for place, operand in enumerate(x.operands):
            other, others = self.ways[operand]
            dim = along.operands[place] if along is not None else None
            agree = other is not None and dim is not None and other.result == dim
            if agree:
                first, last = number * others // count, -(-(number + 1) * others // count)
                found += [(operand, n) for n in range(first, last)]
            else:
                found += [(operand, n) for n in range(others)]
        return found

    def seconds(self) -> float:
        end: dict[tuple[HloInstruction, int], float] = {}
        free = {"compute": 0.0, "wire": 0.0}
        left = {(x, n) for x, (_, count) in self.ways.items() for n in range(count)}
        while left:
            ready = [one for one in left if all(y in end for y in self.needed(*one))]
            begins = {one: max((end[y] for y in self.needed(*one)), default=0.0) for one in ready}
            x, n = min(ready, key=lambda one: (begins[one], self.dice.random()))
            at, count = begins[x, n], self.ways[x][1]
            if x.opcode is Opcode.ALL_REDUCE:
                sent = self.estimator.collective(x)
                at = max(at, free["wire"])
                free["wire"] = at + (sent.seconds - sent.latency) / count
                end[x, n] = free["wire"] + sent.latency
            else:
                at = max(at, free["compute"]) if self.estimator.compute(x) else at
                end[x, n] = at + self.estimator.compute(x) / count
                if self.estimator.compute(x):
                    free["compute"] = end[x, n]
            left.remove((x, n))
        return max(end.values())


@pytest.mark.parametrize("seed", range(60))
def test_no_schedule_of_pieces_is_shorter(seed: int) -> None:
    dice = random.Random(seed)
    lines, names, kernels, sent = [], ["w", "v"], {}, {}
    for n in range(dice.randrange(3, 11)):
        form, name = dice.choice(("dot!", "add!", "sum!", "dot!", "turn")), f"x{n}"
        one, other = dice.choice(names[-3:]), dice.choice(names)
        if form == "sum!":
            lines.append(f"{name} = sum!({one})")
            sent[name] = wire(dice.choice((4.0, 16.0, 40.0)), dice.choice((0.0, 0.5, 2.0)))
        elif form == "turn":
            lines.append(f"{name} = f32[8,8] transpose({one}), dimensions={{1,0}}")
        else:
            lines.append(f"{name} = {form}({one}, {other})")
            kernels[name] = dice.choice((1.0, 8.0, 24.0))
        names.append(name)
    root = f"({', '.join(['f32[8,8]'] * len(names))}) tuple({', '.join(names)})"
    module, estimator = module_of("\n".join(lines), root), TableEstimator(kernels, sent)
    found = least_step(module, estimator)
    for _ in range(20):
        pieces = Pieces(module, estimator, dice)
        pieces.cut()
        assert pieces.seconds() >= found.seconds - 1e-9
