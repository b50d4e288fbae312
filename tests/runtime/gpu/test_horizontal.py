"""Kernels side by side in one launch: on the emulated GPU, and the order of commands that depend on each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from launch.options import CompileOptions
from launch.pipeline import compile_module
from runtime.buffers.types import ArrayView
from runtime.executable import Executable
from runtime.gpu.codegen.launch import WARP
from runtime.gpu.command import Command, traverse_commands
from runtime.gpu.commands.collective import StartCommand
from runtime.gpu.commands.horizontal import HorizontalCommand
from runtime.gpu.commands.kernel_command import KernelCommand
from runtime.gpu.commands.sequence import plan_commands
from runtime.gpu.engine import GpuEngine
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.planning import Planner
from runtime.gpu.work import HorizontalWork, Work
from runtime.program.thunks import Thunk
from spmd.evaluator.evaluator import evaluate
from spmd.text.parser import parse_module
from tests.runtime.compiled_cases import compiled_case
from tests.runtime.gpu.codegen.assembler import accepted, needs_assembler
from tests.runtime.gpu.codegen.emulator import needs_contexts, run_source
from tests.runtime.gpu.doubles.engines import devices_of
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.programs.build import assert_same, random_inputs

#: Loops over unequal sizes with different bodies, a kernel with barriers and shared memory, and a transpose.
APART = """HloModule apart
sum {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] add(p, q)
}
largest {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] maximum(p, q)
}
ENTRY e {
  x = f32[3,700] parameter(0)
  y = f32[1000] parameter(1)
  z = f32[41] parameter(2)
  w = f32[33,65] parameter(3)
  zero = f32[] constant(0)
  low = f32[] constant(-inf)
  m = f32[3] reduce(x, low), dimensions={1}, to_apply=largest
  mb = f32[3,700] broadcast(m), dimensions={0}
  d = f32[3,700] subtract(x, mb)
  e = f32[3,700] exponential(d)
  s = f32[3] reduce(e, zero), dimensions={1}, to_apply=sum
  sb = f32[3,700] broadcast(s), dimensions={0}
  softmax = f32[3,700] divide(e, sb)
  tanh = f32[1000] tanh(y)
  square = f32[41] multiply(z, z)
  shifted = f32[41] add(square, z)
  turned = f32[65,33] transpose(w), dimensions={1,0}
  ROOT r = (f32[3,700], f32[1000], f32[41], f32[65,33]) tuple(softmax, tanh, shifted, turned)
}
"""
#: Each kernel reads what the one before writes, behind sorts, which are in no kernel with others.
CHAIN = """HloModule chain
less {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = pred[] compare(p, q), direction=LT
}
ENTRY e {
  x = f32[50] parameter(0)
  a = f32[50] sort(x), dimensions={0}, to_apply=less
  b = f32[50] tanh(a)
  c = f32[50] sort(b), dimensions={0}, to_apply=less
  ROOT d = f32[50] exponential(c)
}
"""
#: Parts of unequal sizes, a padding on both sides, and a loop.
PARTS = """HloModule parts
ENTRY e {
  x = f32[3,70] parameter(0)
  y = f32[3,10] parameter(1)
  z = f32[3,31] parameter(2)
  w = f32[90] parameter(3)
  zero = f32[] constant(0)
  joined = f32[3,111] concatenate(x, y, z), dimensions={1}
  padded = f32[5,70] pad(x, zero), padding=1_1x0_0
  tanh = f32[90] tanh(w)
  ROOT r = (f32[3,111], f32[5,70], f32[90]) tuple(joined, padded, tanh)
}
"""


class EmulatedDriver(HostDriver):
    """Double whose horizontal launches run as they are written for a GPU."""

    def _loaded(self, work: Work) -> Callable[[], None]:
        if not isinstance(work, HorizontalWork):
            return super()._loaded(work)
        ((launch, pointers),) = ((each.launch, each.pointers) for each in work.placed)
        return partial(run_source, launch, [p for p in pointers if p is not None])


def on_double(executable: Executable, driver: HostDriver, options: GpuOptions = DEFAULT) -> None:
    executable.engine = GpuEngine(lambda _: driver, launch_maker, options)


def horizontal_commands(executable: Executable) -> list[HorizontalCommand]:
    plan = devices_of(executable).devices[0].plan
    return [
        command for command in traverse_commands(plan) if isinstance(command, HorizontalCommand)
    ]


@needs_contexts
def test_parts_of_one_kernel_are_one_launch() -> None:
    executable = compile_module(parse_module(PARTS), 1, CompileOptions(fusion=False))
    on_double(executable, EmulatedDriver())
    (command,) = horizontal_commands(executable)
    assert [len(part.launches) for part in command.parts] == [1, 1, 1]
    inputs = random_inputs(executable.module, 0)
    wanted = evaluate(parse_module(PARTS), *inputs)
    for x, y in zip(executable.run(*inputs), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(x), y, rtol=1e-5)


@needs_contexts
def test_one_launch_computes_what_its_kernels_do() -> None:
    executable = compile_module(parse_module(APART), 1)
    on_double(executable, EmulatedDriver())
    (command,) = horizontal_commands(executable)
    assert len(command.parts) == 3
    assert len({part.launches[0].threads for part in command.parts}) > 1
    assert command.launch.blocks == sum(part.launches[0].blocks for part in command.parts)
    assert ".part" in command.launch.ir, "functions of one name and other texts"
    for seed in range(3):
        inputs = random_inputs(executable.module, seed)
        found = executable.run(*inputs)
        wanted = evaluate(parse_module(APART), *inputs)
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(x), y, rtol=1e-5)


@needs_assembler
def test_ptxas_accepts_it() -> None:
    executable = compile_module(parse_module(APART), 1)
    on_double(executable, HostDriver())
    (command,) = horizontal_commands(executable)
    accepted((command.launch,), "sm_80", "sm_90")


def test_what_reads_a_result_is_launched_later() -> None:
    executable = compile_module(parse_module(CHAIN), 1)
    on_double(executable, HostDriver())
    assert horizontal_commands(executable) == []
    inputs = random_inputs(executable.module, 0)
    assert_same(executable.run(*inputs), evaluate(parse_module(CHAIN), *inputs))


def test_timelines_have_every_kernel_by_itself() -> None:
    executable = compile_module(parse_module(APART), 1)
    on_double(executable, HostDriver(), GpuOptions(graphs=False))
    assert horizontal_commands(executable) == []


@pytest.mark.parametrize("name", ["gpt_dp2tp2", "mlp_fsdp8", "kv_decode_dp2tp2", "ring_attention4"])
def test_steps_that_depend_on_each_other_keep_their_order(name: str, cases: Path) -> None:
    """Every pair is compared, slice by slice, which shares nothing with how commands are moved."""
    case = compiled_case(cases / name)
    plans = []
    for graphs in (False, True):
        options = GpuOptions(graphs=graphs)
        planner = Planner(0, case.devices, launch_maker(HostDriver()), options=options)
        plans.append(plan_commands(case.compiled.program.thunks, planner))
    before, after = map(positions, plans)
    assert before.keys() == after.keys()
    moved = 0
    for (one, (first, a)), (other, (second, b)) in combinations(before.items(), 2):
        if first > second:
            one, other, a, b = other, one, b, a
        if depends(a, b):
            assert after[one][0] < after[other][0], (one, other)
        else:
            moved += after[one][0] >= after[other][0]
    assert moved or name == "ring_attention4"


def positions(plan: tuple[Command, ...]) -> dict[tuple[Thunk, int], tuple[int, Command]]:
    """The position of each kernel and collective: one for all kernels of a launch."""
    found: dict[tuple[Thunk, int], tuple[int, Command]] = {}

    def add(command: Command, position: int) -> None:
        if isinstance(command, (KernelCommand, StartCommand)):
            number = sum(1 for thunk, _ in found if thunk is command.thunk)
            found[command.thunk, number] = position, command

    for position, command in enumerate(traverse_commands(plan)):
        if isinstance(command, HorizontalCommand):
            for part in command.parts:
                add(part, position)
        elif not any(command in launch.parts for launch in _launches(plan)):
            add(command, position)
    return found


def _launches(plan: tuple[Command, ...]) -> list[HorizontalCommand]:
    return [
        command for command in traverse_commands(plan) if isinstance(command, HorizontalCommand)
    ]


def depends(one: KernelCommand | StartCommand, other: KernelCommand | StartCommand) -> bool:
    return (
        overlap(written(one), written(other))
        or overlap(written(one), other.operands)
        or overlap(one.operands, written(other))
    )


def written(command: KernelCommand | StartCommand) -> tuple[ArrayView, ...]:
    return (*command.results, *getattr(command, "scratch", ()))


def overlap(some: tuple[ArrayView, ...], others: tuple[ArrayView, ...]) -> bool:
    return any(a.slice.overlaps(b.slice) for a in some for b in others)


def test_threads_of_parts_are_whole_warps() -> None:
    executable = compile_module(parse_module(APART), 1)
    on_double(executable, HostDriver())
    (command,) = horizontal_commands(executable)
    assert all(part.launches[0].threads % WARP == 0 for part in command.parts)
