"""Tests of the cost of a fused kernel: bytes and evaluations that are counted by hand, and seconds on a machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.fusion.cost.cost_model import CostModel, KernelCost
from runtime.fusion.element_graph import post_order
from runtime.fusion.kernel_kinds import KernelCosts, KernelKinds
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.machine.description import MachineDescription, MemoryLevel
from spmd.machine.named import machine_named
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module

MACHINE = machine_named()
SUM = "sum {\n  u = f32[] parameter(0)\n  v = f32[] parameter(1)\n  ROOT w = f32[] add(u, v)\n}"


def entry(body: str) -> HloModule:
    return parse_module(f"HloModule t\n{SUM}\nENTRY e {{\n{body}\n}}\n")


def parameters(module: HloModule) -> tuple[HloInstruction, ...]:
    return tuple(module.entry.with_opcode(Opcode.PARAMETER))


def cost(body: str) -> KernelCost:
    """Return the cost of the whole entry as one kernel."""
    module = entry(body)
    root = module.entry.root
    roots = root.operands if root.opcode is Opcode.TUPLE else (root,)
    return kernel_cost(roots, parameters(module), MACHINE)


def kernel_cost(
    roots: tuple[HloInstruction, ...],
    inputs: tuple[HloInstruction, ...],
    machine: MachineDescription,
) -> KernelCost:
    return priced(roots, inputs, CostModel(machine))


def priced(
    roots: tuple[HloInstruction, ...], inputs: tuple[HloInstruction, ...], cost_model: CostModel
) -> KernelCost:
    order = post_order(roots, dict.fromkeys(inputs, 0))
    members = dict.fromkeys(x for x in order if x not in inputs)
    kind = KernelKinds(KernelCosts(cost_model)).kind(roots, members, dict.fromkeys(inputs))
    assert kind.cost is not None
    return kind.cost


class Counting(CostModel):
    """Machine on which each computed element takes a second, and a kernel's start nothing."""

    def element(self, x: HloInstruction) -> float:
        return 1.0 if super().element(x) else 0.0

    def combining(self, kind: PrimitiveType) -> float:
        return 1.0

    def kernel(self, work: float, rows: float, loops: int = 1) -> float:
        return work


def evaluations(body: str) -> float:
    """Return how many elements the entry computes as one kernel."""
    module = entry(body)
    root = module.entry.root
    roots = root.operands if root.opcode is Opcode.TUPLE else (root,)
    return priced(roots, parameters(module), Counting(MACHINE)).least


def test_a_repeated_operand_is_read_once() -> None:
    body = (
        "x = f32[64,100] parameter(0)\ny = f32[100] parameter(1)\n"
        "b = f32[64,100] broadcast(y), dimensions={1}\nROOT r = f32[64,100] add(x, b)"
    )
    found = cost(body)
    assert found.bytes_read == 4 * (6400 + 100)
    assert found.bytes_written == 4 * 6400
    assert (evaluations(body), found.code) == (6400, 1)


def test_of_a_slice_only_what_is_touched_is_read() -> None:
    found = cost(
        "x = f32[64,100] parameter(0)\ns = f32[8,100] slice(x), slice={[8:16],[0:100]}\n"
        "ROOT r = f32[8,100] negate(s)"
    )
    assert found.bytes_read == 4 * 800


def test_an_element_at_two_places_is_computed_twice() -> None:
    body = (
        "x = f32[100] parameter(0)\ne = f32[100] exponential(x)\n"
        "v = f32[100] reverse(e), dimensions={0}\nROOT r = f32[100] add(e, v)"
    )
    found = cost(body)
    assert (evaluations(body), found.code) == (300, 3)
    assert found.bytes_read == 400


def test_an_element_at_one_place_is_computed_once_however_it_is_reached() -> None:
    body = (
        "x = f32[4,25] parameter(0)\ne = f32[4,25] exponential(x)\nf = f32[100] reshape(e)\n"
        "n = f32[100] negate(f)\nb = f32[4,25] reshape(n)\nROOT r = f32[4,25] add(e, b)"
    )
    found = cost(body)
    assert (evaluations(body), found.code) == (300, 3)


@pytest.mark.parametrize(("dimension", "size", "more"), [(0, 64, 64), (1, 100, 6400)])
def test_what_the_innermost_loop_does_not_change_is_computed_once_per_row(
    dimension: int, size: int, more: int
) -> None:
    body = (
        f"x = f32[64,100] parameter(0)\ny = f32[{size}] parameter(1)\ne = f32[{size}] exponential(y)\n"
        f"b = f32[64,100] broadcast(e), dimensions={{{dimension}}}\nROOT r = f32[64,100] add(x, b)"
    )
    assert evaluations(body) == 6400 + more


def test_a_reduction_computes_for_every_element_that_comes_in() -> None:
    body = (
        "x = f32[64,100] parameter(0)\nz = f32[] constant(0)\ne = f32[64,100] exponential(x)\n"
        "ROOT r = f32[64] reduce(e, z), dimensions={1}, to_apply=sum"
    )
    found = cost(body)
    assert evaluations(body) == 2 * 6400
    assert (found.bytes_read, found.bytes_written) == (4 * 6400, 4 * 64)


def test_several_results_share_what_they_need() -> None:
    body = (
        "x = f32[100] parameter(0)\ne = f32[100] exponential(x)\nn = f32[100] negate(e)\n"
        "s = f32[100] multiply(e, e)\nROOT t = (f32[100], f32[100]) tuple(n, s)"
    )
    found = cost(body)
    assert evaluations(body) == 300
    assert (found.bytes_read, found.bytes_written) == (400, 800)


def test_one_kernel_of_a_chain_takes_less_than_its_parts() -> None:
    module = entry(
        "x = f32[1024,1024] parameter(0)\na = f32[1024,1024] negate(x)\nROOT r = f32[1024,1024] abs(a)"
    )
    x, a, r = module.entry.instructions
    both = kernel_cost((r,), (x,), MACHINE).seconds
    apart = kernel_cost((a,), (x,), MACHINE).seconds + kernel_cost((r,), (a,), MACHINE).seconds
    assert 0.4 * apart < both < 0.6 * apart


def copied(dims: str) -> KernelCost:
    return cost(f"x = f32[{dims}] parameter(0)\nROOT r = f32[{dims}] negate(x)")


def test_bytes_cost_what_their_level_gives() -> None:
    near, far = copied("1024"), copied("67108864")
    assert far.bytes / (far.seconds - MACHINE.thunk_seconds) == pytest.approx(
        MACHINE.levels[-1].bandwidth, rel=0.01
    )
    fixed = MACHINE.thunk_seconds + MACHINE.kernel_seconds
    assert near.bytes / (near.seconds - fixed) > 10 * MACHINE.levels[-1].bandwidth


def test_reading_across_rows_costs_more() -> None:
    along, across = (
        cost(
            f"x = f32[2048,2048] parameter(0)\nt = f32[2048,2048] transpose(x), dimensions={{{order}}}\n"
            "ROOT r = f32[2048,2048] negate(t)"
        ).seconds
        for order in ("0,1", "1,0")
    )
    assert across > 1.5 * along


def test_short_rows_cost_their_beginnings() -> None:
    def rows(dims: str) -> float:
        return cost(
            f"x = f32[{dims}] parameter(0)\ny = f32[{dims.split(',')[0]}] parameter(1)\n"
            f"b = f32[{dims}] broadcast(y), dimensions={{0}}\nROOT r = f32[{dims}] add(x, b)"
        ).seconds

    assert rows("4096,4") - rows("4,4096") == pytest.approx(4092 * MACHINE.row_seconds, rel=0.1)


def test_the_machine_decides_what_is_dear() -> None:
    module = entry("x = f32[4096] parameter(0)\nROOT r = f32[4096] exponential(x)")
    (x,), r = parameters(module), module.entry.root
    slow_memory = replace(MACHINE, levels=(MemoryLevel("memory", 1 << 40, 1e6),))
    assert kernel_cost((r,), (x,), slow_memory).seconds == pytest.approx(
        2 * 4 * 4096 / 1e6, rel=1e-3
    )
    (kind, rates), *others = MACHINE.rates
    slow = replace(
        MACHINE, rates=((kind, replace(rates, transcendental=1e3, functions=())), *others)
    )
    assert kernel_cost((r,), (x,), slow).seconds == pytest.approx(4096 / 1e3, rel=1e-3)
