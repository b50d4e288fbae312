"""Fitting a memory limit: a training step whose activations are computed again, and the same numbers come out."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from launch.options import CompileOptions
from launch.pipeline import stages
from runtime.buffers.types import BufferAssignment
from runtime.compile import build_executable, schedule_module
from runtime.device_program import MemoryLimitError
from runtime.executable import Executable
from runtime.schedule.exact_memory import device_bytes
from runtime.schedule.memory_fit import fit_memory
from spmd.analysis.cost import module_cost
from spmd.evaluator.evaluator import evaluate
from spmd.evaluator.lockstep import evaluate_partitions
from spmd.hlo import HloModule, Opcode
from spmd.hlo.clone import clone_module
from tests.runtime.programs.build import module_of, random_inputs
from tests.strategies import generate

LAYERS = 6


def training_step(layers: int = LAYERS) -> str:
    """Forward and backward through ``layers`` of h = tanh(exp(-h^2) w): without repetition three values of each wait."""
    rows = ["HloModule step", "sum {", "  a = f64[] parameter(0)", "  b = f64[] parameter(1)"]
    rows += ["  ROOT r = f64[] add(a, b)", "}", "ENTRY main {", "  h0 = f64[64,32] parameter(0)"]
    rows += [f"  w{k} = f64[32,32] parameter({k})" for k in range(1, layers + 1)]
    rows += ["  one = f64[] constant(1)", "  ones = f64[64,32] broadcast(one), dimensions={}"]
    for k in range(1, layers + 1):
        rows += [
            f"  q{k} = f64[64,32] multiply(h{k - 1}, h{k - 1})",
            f"  n{k} = f64[64,32] negate(q{k})",
            f"  e{k} = f64[64,32] exponential(n{k})",
            f"  m{k} = f64[64,32] dot(e{k}, w{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"  h{k} = f64[64,32] tanh(m{k})",
        ]
    rows.append(f"  d{layers} = f64[64,32] negate(h{layers})")
    for k in range(layers, 0, -1):
        rows += [
            f"  t{k} = f64[64,32] multiply(h{k}, h{k})",
            f"  v{k} = f64[64,32] subtract(ones, t{k})",
            f"  dm{k} = f64[64,32] multiply(d{k}, v{k})",
            f"  g{k} = f64[32,32] dot(e{k}, dm{k}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}",
            f"  de{k} = f64[64,32] dot(dm{k}, w{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}",
            f"  dn{k} = f64[64,32] multiply(de{k}, e{k})",
            f"  dq{k} = f64[64,32] negate(dn{k})",
            f"  dh{k} = f64[64,32] multiply(dq{k}, h{k - 1})",
            f"  d{k - 1} = f64[64,32] add(dh{k}, dh{k})",
        ]
    gradients = ", ".join(["d0", *(f"g{k}" for k in range(1, layers + 1))])
    shapes = ", ".join(["f64[64,32]", *["f64[32,32]"] * layers])
    return "\n".join([*rows, f"  ROOT t = ({shapes}) tuple({gradients})", "}"])


#: The same layers in a loop, whose body does a forward and a backward pass on its own.
LOOP = """HloModule loop
body {
  s = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[64,64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  e1 = f32[64,64] exponential(h)
  e2 = f32[64,64] tanh(e1)
  e3 = f32[64,64] sine(e2)
  e4 = f32[64,64] cosine(e3)
  y3 = f32[64,64] multiply(e4, e3)
  y2 = f32[64,64] multiply(y3, e2)
  y1 = f32[64,64] multiply(y2, e1)
  n = f32[64,64] tanh(y1)
  ROOT r = (s32[], f32[64,64]) tuple(j, n)
}
condition {
  s = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[64,64] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[64,64]) tuple(zero, x)
  w = (s32[], f32[64,64]) while(t), condition=condition, body=body
  ROOT r = f32[64,64] get-tuple-element(w), index=1
}
"""


def total(assignment: BufferAssignment) -> int:
    return sum(allocation.size for allocation in assignment.allocations)


def fitted(text: str, limit: int) -> Executable:
    """Return the executable within the limit, which passes both checkers."""
    return build_executable(module_of(text), memory_limit=limit)


def work(module: HloModule) -> float:
    cost = module_cost(module)
    return cost.flops + cost.transcendentals


@cache
def least(text: str) -> int:
    """Return the limit that the refusal of an impossible limit calls enough."""
    with pytest.raises(MemoryLimitError) as refusal:
        fitted(text, 1)
    return int(str(refusal.value).split("--memory-limit ")[1].split(" ")[0])


def assert_same_numbers(text: str, executable: Executable) -> None:
    module = module_of(text)
    inputs = random_inputs(module)
    for got, want in zip(executable.run(*inputs), evaluate(module, *inputs), strict=True):
        exact = 4096 * np.finfo(want.dtype).eps * np.abs(want).max()
        np.testing.assert_allclose(got, want, rtol=0, atol=exact)


@pytest.mark.parametrize("text", [training_step(), LOOP], ids=["unrolled", "loop"])
def test_a_limit_forces_recomputation_and_the_numbers_stay(text: str) -> None:
    free = build_executable(module_of(text))
    unlimited = total(free.program.assignment)
    limit = (unlimited + 3 * least(text)) // 4
    assert limit < unlimited
    executable = fitted(text, limit)
    assert total(executable.program.assignment) <= limit
    assert work(executable.module) > work(module_of(text))
    assert_same_numbers(text, executable)


def test_the_least_limit_can_be_met_and_one_byte_less_cannot() -> None:
    text = training_step()
    smallest = least(text)
    executable = fitted(text, smallest)
    assert total(executable.program.assignment) == smallest
    assert_same_numbers(text, executable)
    with pytest.raises(MemoryLimitError, match=f"--memory-limit {smallest} is enough"):
        fitted(text, smallest - 1)


def test_activations_of_all_layers_are_not_held_at_once() -> None:
    """Two values of each layer wait for the backward pass; recomputed from every second layer's or so, far fewer."""
    text = training_step(8)
    value = 64 * 32 * 8
    unlimited = total(build_executable(module_of(text)).program.assignment)
    assert unlimited - least(text) > 6 * value


def test_a_limit_that_is_met_changes_nothing() -> None:
    module = schedule_module(module_of(training_step()))
    text = str(module)
    fit_memory(module, device_bytes(module))
    assert str(module) == text


def test_a_lower_limit_never_costs_less() -> None:
    text = training_step()
    unlimited, smallest = total(build_executable(module_of(text)).program.assignment), least(text)
    works = [
        work(fitted(text, limit).module)
        for limit in (unlimited, (unlimited + smallest) // 2, smallest)
    ]
    assert works == sorted(works)
    assert works[0] < works[-1]


#: Weights that are gathered for the forward pass and needed again in the backward pass.
GATHERED = """HloModule gathered, num_partitions=2
ENTRY main {
  x = f32[8,64] parameter(0)
  w1 = f32[32,64] parameter(1)
  w2 = f32[32,64] parameter(2)
  a1 = f32[64,64] all-gather(w1), dimensions={0}, replica_groups={{0,1}}, channel_id=1, use_global_device_ids=true
  y1 = f32[8,64] dot(x, a1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  a2 = f32[64,64] all-gather(w2), dimensions={0}, replica_groups={{0,1}}, channel_id=2, use_global_device_ids=true
  y2 = f32[8,64] dot(y1, a2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d1 = f32[8,64] dot(y2, a2), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT d0 = f32[8,64] dot(d1, a1), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""


def gathers(module: HloModule) -> int:
    return sum(i.opcode is Opcode.ALL_GATHER for i in module.entry.instructions)


def test_weights_are_gathered_again_where_nothing_else_helps() -> None:
    free = build_executable(module_of(GATHERED))
    assert gathers(free.module) == 2
    unlimited = total(free.program.assignment)
    executable = fitted(GATHERED, unlimited - 64 * 64 * 4)
    assert gathers(executable.module) == 3
    inputs = [np.ones(b.shape.dims, np.float32) for b in executable.inputs]
    for got, want in zip(executable.run(*inputs), free.run(*inputs), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_as_low_as_they_go(seed: int) -> None:
    """Checkers green, and the devices' numbers are those of lock-step evaluation without any repetition."""
    program = generate(seed)
    compilation = next(
        found
        for stage, found in stages(program.module, program.num_devices, CompileOptions())
        if stage == "optimized"
    )
    before = clone_module(compilation.module)
    module = schedule_module(compilation.module, memory_limit=1)
    executable = build_executable(module, logical=program.module)
    tiles = [[np.asarray(tile) for tile in own] for own in executable.put(program.inputs()).tiles]
    want = evaluate_partitions(before, tiles)
    for outputs, expected in zip(executable.run_devices(tiles), want, strict=True):
        for x, y in zip(outputs, expected, strict=True):
            wide = np.complex128 if x.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(x.astype(wide), y.astype(wide), rtol=2e-5, atol=1e-5)
