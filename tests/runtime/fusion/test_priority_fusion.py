"""Tests of which kernels are made: those that save time, within limits of memory and order, the same each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from collectives.schedule.checker import check_schedule
from runtime.compile import build_executable, schedule_module
from runtime.fusion.cost.cost_model import KernelCost
from runtime.fusion.fusion_graph import FusionGraph
from runtime.fusion.fusion_kernel import FusedKernelSpec, Kernel
from runtime.fusion.kernel_kinds import KernelCosts
from runtime.fusion.priority_fusion import PriorityFusion
from runtime.fusion.priority_queue import least_seconds
from runtime.schedule.exact_memory import device_bytes
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.hlo.clone import clone_module
from spmd.machine.description import MachineDescription
from spmd.machine.named import machine_named
from spmd.machine.reader import read_machine, write_machine
from spmd.passes.fuel import Fuel
from spmd.passes.options import parse_passes
from spmd.text.parser import parse_module
from spmd.verifier import verify
from tests.runtime.programs.build import assert_same, random_inputs
from tests.spmd.passes.triggers.registry import trigger_of

SUM = "sum {\n  u = f32[] parameter(0)\n  v = f32[] parameter(1)\n  ROOT w = f32[] add(u, v)\n}"


def program(body: str, before: str = "") -> HloModule:
    module = parse_module(f"HloModule t\n{SUM}\n{before}\nENTRY e {{\n{body}\n}}\n")
    module.stage = Stage.OPTIMIZED
    return module


def fused(module: HloModule, step: PriorityFusion | None = None) -> HloModule:
    copy = clone_module(module)
    (step or PriorityFusion()).run(copy)
    verify(copy)
    return copy


def fusions(module: HloModule) -> list[HloInstruction]:
    return [x for x in module.all_instructions() if x.opcode is Opcode.FUSION]


def inside(fusion: HloInstruction) -> list[Opcode]:
    return [x.opcode for x in fusion.to_apply.instructions if x.opcode is not Opcode.PARAMETER]


def random_program(seed: int) -> HloModule:
    """A few steps of each form that sets the pass off, one after the other."""
    trigger = trigger_of("priority-fusion")
    assert trigger is not None
    return trigger.modules(np.random.default_rng(seed))


# ---- what pays
COPIED = """
  x = f32[4096] parameter(0)
  p = f32[4096] {op}(x)
  b = f32[64,4096] broadcast(p), dimensions={{{dimension}}}
  y = f32[64,4096] parameter(1)
  ROOT r = f32[64,4096] add(y, b)
"""


def test_a_dear_producer_is_not_computed_again_for_every_row() -> None:
    """Read by every row, its elements would be computed 64 times; a cheap one costs nothing beside the memory."""
    assert not fusions(fused(program(COPIED.format(op="tanh", dimension=1))))
    (cheap,) = fusions(fused(program(COPIED.format(op="negate", dimension=1))))
    assert Opcode.NEGATE in inside(cheap)


def test_a_dear_producer_of_one_element_per_row_is() -> None:
    body = COPIED.format(op="tanh", dimension=0).replace("64,4096", "4096,64")
    (one,) = fusions(fused(program(body)))
    assert Opcode.TANH in inside(one)


@pytest.fixture
def slow_memory() -> MachineDescription:
    """A machine whose memory is far slower than its arithmetic."""
    default = machine_named()
    text = write_machine(default).replace('"cpu-avx512"', '"test-slow-memory"')
    for level in default.levels:
        text = text.replace(
            f'"bandwidth": {level.bandwidth}', f'"bandwidth": {level.bandwidth / 1e4}'
        )
    return read_machine(text.encode(), "test")


def test_what_pays_depends_on_the_machine(slow_memory: MachineDescription) -> None:
    """The dear producer is computed again if memory is far slower than arithmetic."""
    body = program(COPIED.format(op="tanh", dimension=1))
    assert fusions(fused(body, PriorityFusion(machine=slow_memory)))


def test_an_unknown_machine_is_named() -> None:
    from spmd.machine.reader import MachineError

    with pytest.raises(MachineError, match="no machine is named 'abacus'"):
        parse_passes("priority-fusion{machine=abacus}")


def test_a_producer_is_copied_into_readers_of_other_sizes() -> None:
    module = program(
        """
  x = f32[512,128] parameter(0)
  y = f32[512,128] parameter(1)
  p = f32[512,128] add(x, y)
  z = f32[] constant(0)
  a = f32[512] reduce(p, z), dimensions={1}, to_apply=sum
  b = f32[128] reduce(p, z), dimensions={0}, to_apply=sum
  ROOT t = (f32[512], f32[128]) tuple(a, b)
"""
    )
    both = fusions(fused(module))
    assert [Opcode.ADD in inside(fusion) for fusion in both] == [True, True]
    assert not fusions(fused(module, PriorityFusion(duplicate=False, multi_output=False)))


# ---- limits
def chain(length: int, dims: str = "1024") -> HloModule:
    names = ["x", *(f"v{n}" for n in range(length))]
    lines = [
        f"{'ROOT ' if n == length - 1 else ''}v{n} = f32[{dims}] {('add', 'multiply')[n % 2]}({names[n]}, y)"
        for n in range(length)
    ]
    return program(
        "\n".join([f"x = f32[{dims}] parameter(0)", f"y = f32[{dims}] parameter(1)", *lines])
    )


@pytest.mark.parametrize("most", [2, 5, 64])
def test_no_kernel_has_more_instructions_than_it_may(most: int) -> None:
    made = fusions(fused(chain(100), PriorityFusion(max_instructions=most)))
    sizes = [len(inside(fusion)) for fusion in made]
    assert max(sizes) <= most
    assert len(made) <= 1 + 4 * 100 // most


def test_no_kernel_has_more_inputs_or_results_than_it_may() -> None:
    parameters = [f"p{n} = f32[256] parameter({n})" for n in range(40)]
    updates = [f"new{n} = f32[256] negate(p{n})" for n in range(40)]
    names = ", ".join(f"new{n}" for n in range(40))
    shapes = ", ".join(["f32[256]"] * 40)
    module = program("\n".join([*parameters, *updates, f"ROOT t = ({shapes}) tuple({names})"]))
    made = fusions(fused(module, PriorityFusion(max_inputs=7, max_results=9)))
    assert max(fusion.num_operands for fusion in made) == 7
    made = fusions(fused(module, PriorityFusion(max_results=5)))
    assert max(len(fusion.to_apply.root.operands) for fusion in made) == 5
    assert not fusions(fused(module, PriorityFusion(horizontal=False)))


# ---- what stays
def test_nothing_is_fused_across_a_collective() -> None:
    module = program(
        """
  x = f32[1024] parameter(0)
  a = f32[1024] negate(x)
  s = f32[1024] all-reduce(a), replica_groups={}, to_apply=sum
  b = f32[1024] negate(s)
  ROOT c = f32[1024] abs(b)
"""
    )
    (one,) = fusions(fused(module))
    assert inside(one) == [Opcode.NEGATE, Opcode.ABS]
    assert one.operand(0).opcode is Opcode.ALL_REDUCE


def test_kernels_that_depend_on_each_other_another_way_do_not_become_one() -> None:
    """u and w read x, but w waits for the product of u: one kernel would wait for itself."""
    module = program(
        """
  x = f32[64,64] parameter(0)
  u = f32[64,64] negate(x)
  d = f32[64,64] dot(u, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  w = f32[64,64] add(x, d)
  ROOT t = (f32[64,64], f32[64,64]) tuple(u, w)
"""
    )
    assert not fusions(fused(module))


def test_products_that_two_kernels_read_do_not_make_these_wait_for_each_other(
    slow_memory: MachineDescription,
) -> None:
    """The first product goes into the sum; the second one may not take the difference to where it stands itself."""
    module = program(
        """
  x = f32[512,512] parameter(0)
  v = f32[512,512] parameter(1)
  w = f32[512,512] parameter(2)
  a = f32[512,512] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[512,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[512,512] add(a, b)
  d = f32[512,512] subtract(a, b)
  ROOT t = (f32[512,512], f32[512,512]) tuple(s, d)
"""
    )
    made = fusions(fused(module, PriorityFusion(multi_output=False, machine=slow_memory)))
    assert [Opcode.DOT in inside(one) for one in made] == [True]


def test_control_edges_and_other_memory_spaces_stay() -> None:
    module = program(
        """
  x = f32[1024]{0:S(5)} parameter(0)
  y = f32[1024] parameter(1)
  a = f32[1024]{0:S(5)} negate(x)
  b = f32[1024]{0:S(5)} abs(a)
  c = f32[1024] negate(y)
  d = f32[1024] abs(c), control-predecessors={c}
  ROOT t = (f32[1024]{0:S(5)}, f32[1024]) tuple(b, d)
"""
    )
    assert not fusions(fused(module))


def test_a_second_run_finds_nothing() -> None:
    module = fused(chain(80))
    assert not PriorityFusion().run(module)


def test_a_module_that_does_not_run_stays() -> None:
    module = program(
        """
  x = f32[64,64] parameter(0)
  a = f32[64,64] negate(x)
  b = f32[64,64] abs(a)
  elided = f32[64,64] constant({...})
  ROOT c = f32[64,64] add(b, elided)
"""
    )
    assert not PriorityFusion().run(module)


# ---- random programs
SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_schedules_stay_schedules_and_take_no_more_memory(seed: int) -> None:
    module = random_program(seed)
    schedule_module(module)
    before = device_bytes(module)
    after = fused(module)
    assert fusions(after)
    assert after.stage is Stage.SCHEDULED
    check_schedule(after)
    assert device_bytes(after) <= before


@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_kernels_compute_what_the_evaluator_does(seed: int) -> None:
    module = random_program(seed)
    schedule_module(module)
    inputs = random_inputs(module, seed)
    with np.errstate(all="ignore"):
        wanted = evaluate(module, *inputs)
    assert_same(build_executable(fused(module), check=True).run(*inputs), wanted)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_kernels_each_time(seed: int) -> None:
    module = random_program(seed)
    assert str(fused(module)) == str(fused(clone_module(module)))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_fusion_is_right_by_itself(seed: int) -> None:
    """With less fuel only the first fusions are made, and the schedule stays one."""
    module = random_program(seed)
    schedule_module(module)
    inputs = random_inputs(module, seed)
    with np.errstate(all="ignore"):
        wanted = evaluate(module, *inputs)
    for copy, count in partly_fused(module):
        assert len(fusions(copy)) == count
        verify(copy)
        check_schedule(copy)
        with np.errstate(all="ignore"):
            assert_same(evaluate(copy, *inputs), wanted)


def partly_fused(module: HloModule) -> Iterator[tuple[HloModule, int]]:
    for count in range(1, 1 + len(fusions(fused(module)))):
        copy = clone_module(module)
        PriorityFusion().rewrite(copy, Fuel(count))
        yield copy, count


# ---- how long it takes
@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return a counter of the kernels that were tried, and of those that had to be priced."""
    counts: Counter[str] = Counter()
    joined, price = FusionGraph.joined, KernelCosts.of_loop

    def tried(*arguments: Any) -> FusedKernelSpec | None:
        counts["tried"] += 1
        return joined(*arguments)

    def priced(*arguments: Any, **options: bool) -> KernelCost:
        counts["priced"] += 1
        return price(*arguments, **options)

    monkeypatch.setattr(FusionGraph, "joined", tried)
    monkeypatch.setattr(KernelCosts, "of_loop", priced)
    return counts


def test_the_work_grows_with_the_program(counted: Counter[str]) -> None:
    """Programs of n and 4n instructions."""
    counts = []
    for length in (40, 160):
        counted.clear()
        fused(chain(length), PriorityFusion(max_instructions=16))
        counts.append(counted["tried"])
    assert counts[1] < 6 * counts[0]


def test_no_kernel_takes_less_than_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of fusions depends on it: what may save most is tried first."""
    joined = FusionGraph.joined
    tried = []

    def noted(graph: FusionGraph, producer: Kernel, reader: Kernel) -> FusedKernelSpec | None:
        spec = joined(graph, producer, reader)
        tried.append(
            spec is None or least_seconds(producer, reader) <= spec.cost.seconds * 1.000001
        )
        return spec

    monkeypatch.setattr(FusionGraph, "joined", noted)
    for seed in SEEDS:
        fused(random_program(seed))
    assert tried
    assert all(tried)


def test_elementwise_regions_are_not_compared(counted: Counter[str]) -> None:
    """An instruction computed for one result alone, at its own indices, is in its kernel; nothing is tried."""
    body = """
  x = f32[64] parameter(0)
  a = f32[64] tanh(x)
  b = f32[64] multiply(a, x)
  c = f32[64] add(a, b)
  ROOT d = f32[64] maximum(c, x)"""
    (fusion,) = fusions(fused(program(body)))
    assert inside(fusion) == [Opcode.TANH, Opcode.MULTIPLY, Opcode.ADD, Opcode.MAXIMUM]
    assert counted["tried"] == 0


@pytest.mark.parametrize("length", [200, 800])
def test_regions_are_cut_at_the_limits_of_a_kernel(length: int) -> None:
    module = fused(chain(length), PriorityFusion(max_instructions=16))
    sizes = [len(inside(x)) for x in fusions(module)]
    assert max(sizes) <= 16
    assert len(sizes) <= length // 8


def test_what_repeats_is_priced_once(counted: Counter[str]) -> None:
    """Layers that say the same, each behind a sort, which is in no kernel."""
    layer = """
  o{n} = f32[64] sort(r{m}), dimensions={{0}}, to_apply=less
  a{n} = f32[64] tanh(o{n})
  c{n} = f32[64] reverse(a{n}), dimensions={{0}}
  b{n} = f32[64] multiply(c{n}, w{n})
  r{n} = f32[64] add(b{n}, o{n})"""
    less = "less {\n  u = f32[] parameter(0)\n  v = f32[] parameter(1)\n  ROOT w = pred[] compare(u, v), direction=LT\n}"

    def layers(count: int) -> HloModule:
        weights = "\n".join(f"w{n} = f32[64] parameter({n})" for n in range(1, count + 1))
        body = "".join(layer.format(n=n, m=n - 1) for n in range(1, count + 1))
        before = f"r0 = f32[64] parameter(0)\n{weights}\n{body}\n"
        return program(before + f"ROOT last = f32[64] copy(r{count})", less)

    counts = []
    for count in (2, 12):
        counted.clear()
        assert len(fusions(fused(layers(count)))) == count
        counts.append(counted.copy())
    assert counts[1]["tried"] > 4 * counts[0]["tried"]
    assert counts[1]["priced"] == counts[0]["priced"]
