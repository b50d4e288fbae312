"""Programs of a matrix product and what is computed of it, which a GPU's library does in one call, and their checks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.target.machine_option import machine_for
from runtime.executable import Executable
from spmd.evaluator.evaluator import evaluate
from spmd.text.parser import parse_module
from tests.runtime.programs import module_of, random_inputs

#: (type of the operands, type of the product, type of the result)
TYPES = [
    ("f32", "f32", "f32"),
    ("bf16", "f32", "f32"),
    ("bf16", "bf16", "bf16"),
    ("bf16", "f32", "bf16"),
    ("f16", "f16", "f16"),
    ("f16", "f32", "f16"),
    ("f64", "f64", "f64"),
]
#: Largest error of results of a type, relative to the largest result.
TOLERANCES = {"f64": 1e-13, "f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}


@dataclass(frozen=True)
class Program:
    """A program, and the largest error of its results relative to the largest result."""

    text: str
    tolerance: float


def random_program(seed: int) -> Program:
    """Return a product with scale, addend, bias and relu, each of them or not. Sizes, types and layouts are random."""
    rng = np.random.default_rng(seed)
    kind, product, result = TYPES[seed % len(TYPES)]
    batch = [(), (3,), (2, 3)][rng.integers(3)]
    m, n, k = (int(rng.choice([5, 16, 33, 64])) for _ in range(3))
    across, down = rng.integers(2, size=2)
    lhs, rhs = (k, m) if across else (m, k), (n, k) if down else (k, n)
    b = len(batch)
    numbers = ",".join(map(str, range(b)))
    dims = f"[{','.join(map(str, (*batch, m, n)))}]"

    def shape(sizes: tuple[int, ...]) -> str:
        return f"{kind}[{','.join(map(str, (*batch, *sizes)))}]"

    batches = f"lhs_batch_dims={{{numbers}}}, rhs_batch_dims={{{numbers}}}, " if b else ""
    contracting = (
        f"lhs_contracting_dims={{{b + (not across)}}}, rhs_contracting_dims={{{b + down}}}"
    )
    lines = [
        f"x = {shape(lhs)} parameter(0)",
        f"w = {shape(rhs)} parameter(1)",
        f"r = {result}{dims} parameter(2)",
        f"b = {result}[{n}] parameter(3)",
        f"v = {product}{dims} dot(x, w), {batches}{contracting}",
    ]
    state = [0]

    def step(text: str, of: str = product) -> str:
        state[0] += 1
        lines.append(f"v{state[0]} = {of}{dims} {text}")
        return f"v{state[0]}"

    def splat(value: float) -> str:
        state[0] += 1
        lines.append(f"c{state[0]} = {product}[] constant({value})")
        return step(f"broadcast(c{state[0]}), dimensions={{}}")

    def read(text: str) -> str:
        there = step(text, result) if "(" in text else text
        return there if result == product else step(f"convert({there})")

    value = "v"
    if rng.integers(2):
        value = step(f"multiply({value}, {splat(float(rng.choice([0.5, -0.125, 3])))})")
    if rng.integers(2):
        addend = read("r")
        if rng.integers(2):
            addend = step(f"multiply({addend}, {splat(0.75)})")
        opcode = str(rng.choice(["add", "subtract"]))
        pair = (addend, value) if rng.integers(2) else (value, addend)
        value = step(f"{opcode}({', '.join(pair)})")
    if rng.integers(2):
        value = step(f"add({value}, {read(f'broadcast(b), dimensions={{{b + 1}}}')})")
    if rng.integers(2) or value == "v":
        value = step(f"maximum({value}, {splat(0.0)})")
    if product != result:
        value = step(f"convert({value})", result)
    lines[-1] = f"ROOT {lines[-1]}"
    body = "\n  ".join(lines)
    return Program(f"HloModule product\n\nENTRY e {{\n  {body}\n}}\n", TOLERANCES[result])


UPDATE = """HloModule update, input_output_alias={{}: (2, {}, may-alias)}

ENTRY e {
  x = f32[48,33] parameter(0)
  g = f32[48,20] parameter(1)
  p = f32[33,20] parameter(2)
  d = f32[33,20] dot(x, g), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  c = f32[] constant(0.125)
  cs = f32[33,20] broadcast(c), dimensions={}
  s = f32[33,20] multiply(cs, d)
  ROOT n = f32[33,20] subtract(p, s)
}
"""

#: relu of a product that is nan in one row: a nan stays.
NAN = """HloModule nan

ENTRY e {
  x = f32[16,64] parameter(0)
  w = f32[64,32] parameter(1)
  d = f32[16,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[] constant(0)
  z = f32[16,32] broadcast(c), dimensions={}
  ROOT r = f32[16,32] maximum(d, z)
}
"""


def compiled_for_gpu(text: str) -> Executable:
    """Return the program of one device, with the fusions that are made for a GPU."""
    machine = machine_for(None, backend="gpu")
    return compile_module(parse_module(text), 1, CompileOptions(machine=machine))


def check_outputs(executable: Executable, program: Program, steps: int = 1) -> None:
    """Compare the outputs of ``executable``, compiled of ``program``, with the reference evaluator's."""
    inputs = random_inputs(module_of(program.text))
    (want,) = evaluate(module_of(program.text), *inputs)
    for _ in range(steps):
        (got,) = executable.run(*inputs)
        assert got.dtype == want.dtype
        wide = want.astype(np.float64)
        error = np.abs(got.astype(np.float64) - wide).max()
        assert error <= program.tolerance * max(1.0, np.abs(wide).max()), program.text
