"""Writes docs/walkthrough.md: one small module through every stage, from a real run.

python docs/make_walkthrough.py            writes the file
python docs/make_walkthrough.py --check    exit code 1 where the file is not what a run gives now
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import spmd
from launch.options import CompileOptions
from launch.pipeline import stages
from partitioner.propagate_module import propagate_module
from spmd.hlo import HloModule

HERE = Path(__file__).parent
SOURCE = HERE / "walkthrough.hlo"
RESULT = HERE / "walkthrough.md"
DEVICES = 4

Array = np.ndarray[Any, np.dtype[Any]]


def walkthrough() -> str:
    """The whole document."""
    return "\n".join(_sections()) + "\n"


def _sections() -> Iterator[str]:
    module = spmd.load(SOURCE)
    yield _INTRODUCTION
    yield from _chapter("1. Logical", _LOGICAL, SOURCE.read_text(encoding="utf-8"))
    yield from _chapter("2. Propagated", _PROPAGATED, str(propagate_module(module, DEVICES)))
    texts = {}
    for name, compilation in stages(module, DEVICES, CompileOptions()):
        texts[name] = str(compilation.module)
    yield from _chapter("3. Partitioned", _PARTITIONED, texts["partitioned"])
    yield from _chapter("4. Optimized", _OPTIMIZED, texts["optimized"])
    yield from _chapter("5. Scheduled", _SCHEDULED, texts["scheduled"])
    executable = spmd.compile(module, devices=DEVICES)
    yield from _chapter("6. Buffers", _BUFFERS, executable.dump_buffers())
    yield from _chapter("7. Thunks", _THUNKS, executable.dump_thunks())
    yield from _chapter("8. Run", _RUN, "\n".join(_run(module)))


def _chapter(title: str, prose: str, text: str) -> Iterator[str]:
    yield f"\n## {title}\n"
    yield prose.strip()
    yield f"\n```\n{text.rstrip()}\n```"


def _run(module: HloModule) -> Iterator[str]:
    """Inputs, what each device holds, and the outputs beside the evaluator's."""
    inputs = _inputs(module)
    executable = spmd.compile(module, devices=DEVICES)
    for parameter, array in zip(module.entry.parameters, inputs, strict=True):
        yield f"{parameter.name} = {_text(array)}"
    placed = executable.put(inputs)
    yield ""
    for device, tiles in enumerate(placed.tiles):
        yield f"device {device} holds x = {_text(tiles[0])}"
    outputs = executable.run(*inputs)
    wanted = spmd.evaluate(module, *inputs)
    yield ""
    for name, got, want in zip(("w2_out", "loss"), outputs, wanted, strict=True):
        verdict = "equal to" if np.array_equal(got, want) else "DIFFERENT FROM"
        yield f"{name} = {_text(np.asarray(got))}"
        yield f"    {verdict} the evaluator's on the unpartitioned module"


def _inputs(module: HloModule) -> list[Array]:
    """Small whole numbers: every sum is exact, so that the document is the same on every machine."""
    rng = np.random.default_rng(0)
    return [
        rng.integers(-2, 3, p.dims).astype(p.array_shape.element_type.numpy)
        for p in module.entry.parameters
    ]


def _text(value: object) -> str:
    array = np.asarray(value)
    if array.ndim == 0:
        return f"{float(array):g}"
    return "[" + ", ".join(map(_text, array)) + "]"


_INTRODUCTION = """# One module through every stage

Written by `python docs/make_walkthrough.py` from a real run; a test fails when it is not what a run gives.
The program is a step of a two-layer network on 4 devices, a mesh of 2 x 2 named `data` and `model`: 7 rows of input are
shared out over `data`, the weights over `model`, and the second layer's weights are updated in place."""

_LOGICAL = """
What the user hands in: global shapes, Shardy annotations on the parameters and on one output. Nothing says how the rest
is sharded. 7 rows over 2 devices do not divide evenly, which the later stages have to be careful about.
"""

_PROPAGATED = """
Calls are inlined and repetitions removed; then every value gets a sharding. `x` brings `data` to the rows of `h`, `w1`
brings `model` to its columns. `y` contracts over `model`, so only `data` is left on it. The output's annotation is a
custom call with a sharding of its own. Nothing has been cut yet.
"""

_PARTITIONED = """
The program of one device. Shapes are those of tiles: 4 rows, because tiles are rounded up. The contraction over `model`
leaves partial sums, which an all-reduce over the pairs `[2,2]<=[4]` (devices 0,1 and 2,3) adds; loss and gradient sum
over rows, hence over `data` (devices 0,2 and 1,3). The last row of the second tile is padding of unknown content:
before anything is summed over rows, a select puts zeros there, by the row's global position. Only the entry's
parameters and root keep a sharding: that of the global array they are a tile of.
"""

_OPTIMIZED = """
Simplification of the per-device program: equal computations are merged, identities dropped.
"""

_SCHEDULED = """
A total order that keeps few bytes alive at a time. From here on the order in the text is the order of execution.
"""

_BUFFERS = """
Every value gets a place: arguments and outputs have their own allocations, everything else shares one arena, at offsets
that overlap only where lifetimes (counted in instructions) do not. The new weights are written over the old ones, as
the module's alias allows.
"""

_THUNKS = """
What a device executes: kernels and collectives over slices, written `{allocation: offset+size}`. No HLO is left.
"""

_RUN = """
The step on 4 devices inside one process, on whole numbers. Padding of the last tile of `x` is whatever the runtime put
there.
"""


def main(arguments: list[str]) -> int:
    text = walkthrough()
    if arguments == ["--check"]:
        return 0 if RESULT.read_text(encoding="utf-8") == text else 1
    RESULT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
