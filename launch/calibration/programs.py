"""What programs take beside their kernels: dispatch, and collectives between two devices of this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from launch.options import CompileOptions
from launch.pipeline import compile_module
from spmd.machine.description import Exchange
from spmd.machine.fit import nonnegative_fit
from spmd.text.parser import parse_module

#: Steps among which the least counts.
LEAST_STEPS = 10
#: What thunks of different code do, one after the other; those of equal code do the first.
_OPCODES = ("add", "multiply", "maximum", "subtract", "minimum", "divide")


@dataclass(frozen=True)
class ProgramSizes:
    """thunks: of the two programs whose difference is timed; collectives the same. elements: of all-reduces, f32."""

    thunks: tuple[int, int] = (20, 220)
    collectives: tuple[int, int] = (1, 17)
    elements: tuple[int, ...] = (1 << 8, 1 << 16, 1 << 20, 1 << 22)
    budget: float = 0.05


def dispatch_seconds(sizes: ProgramSizes) -> tuple[float, float]:
    """Of a thunk whose code has just run, and how much longer it is where it is another one: the kernel's own."""
    alike, unlike = (
        _each(sizes.thunks, sizes.budget, partial(_chain, opcodes), 1)
        for opcodes in (_OPCODES[:1], _OPCODES)
    )
    return alike, max(unlike - alike, 0.0)


def exchange(sizes: ProgramSizes) -> Exchange:
    """All-reduces between two devices of this process: half of the bytes are read, half are written elsewhere."""
    seconds = [
        _each(sizes.collectives, sizes.budget, partial(_all_reduces, count), 2)
        for count in sizes.elements
    ]
    sent = [4.0 * count for count in sizes.elements]
    latency, each = nonnegative_fit([(1.0, size) for size in sent], seconds)
    return Exchange("devices of one process", 2, 1.0 / max(each, 1e-15), latency)


def _each(
    counts: tuple[int, int], budget: float, text: Callable[[int], str], devices: int
) -> float:
    """What one more of something adds to a step; ``text``: of the program with so many."""
    few, many = (_step_seconds(text(n), devices, budget) for n in counts)
    added = (many - few) / (counts[1] - counts[0])
    return (
        added if added > 0 else many / counts[1]
    )  # disturbed: the program's own is then the most it can be


def _chain(opcodes: tuple[str, ...], length: int) -> str:
    """Operations on short rows, each a kernel of its own."""
    names = ["x", *(f"v{n}" for n in range(length))]
    lines = [
        f"  {'ROOT ' if n == length - 1 else ''}v{n} = f32[16] "
        f"{opcodes[n % len(opcodes)]}({names[n]}, y)"
        for n in range(length)
    ]
    parameters = ["  x = f32[16] parameter(0)", "  y = f32[16] parameter(1)"]
    return "\n".join(["HloModule chain", "ENTRY main {", *parameters, *lines, "}"])


def _all_reduces(count: int, length: int) -> str:
    """Each of what the one before gives."""
    lines = [
        f"  {'ROOT ' if n == length - 1 else ''}r{n} = f32[{count}] "
        f"all-reduce({f'r{n - 1}' if n else 'x'}), replica_groups={{}}, to_apply=sum"
        for n in range(length)
    ]
    return "\n".join(
        [
            "HloModule exchange, replica_count=2",
            "sum {",
            "  x = f32[] parameter(0)",
            "  y = f32[] parameter(1)",
            "  ROOT sum = f32[] add(x, y)",
            "}",
            "ENTRY main {",
            f"  x = f32[{count}] parameter(0)",
            *lines,
            "}",
        ]
    )


def _step_seconds(text: str, devices: int, budget: float) -> float:
    options = CompileOptions(partitioned=True, fusion=False)
    executable = compile_module(parse_module(text), devices, options)
    state = executable.put([np.ones(place.shape.dims, np.float32) for place in executable.inputs])
    end = time.perf_counter() + budget
    seconds: list[float] = []
    while len(seconds) < LEAST_STEPS or time.perf_counter() < end:
        start = time.perf_counter()
        executable.run(state)
        seconds.append(time.perf_counter() - start)
    return min(seconds)
