"""Random logical modules x shardings x meshes.

``generate(seed)`` gives the same program for the same seed, everywhere; ``programs()`` offers them to hypothesis.
Values that decide (indices, comparisons, sort keys) are the same bits however a program is partitioned, and nearly all
sums are exact, so that results can be compared for equality: see tests/differential/generator/writer.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from spmd.builder import Builder
from spmd.hlo import HloModule
from spmd.sharding import HloSharding
from tests.differential.generator import combining, elementwise, indexed, manual, moving, rarer  # noqa: F401 - fill the table
from tests.differential.generator.annotations import (
    annotate_parameter,
    constrain,
    gspmd,
    random_spec,
    shardy_meshes,
)
from tests.differential.generator.control import write_operations
from tests.differential.generator.writer import F32, STYLES, Writer, inputs_of

MESHES: tuple[tuple[int, ...], ...] = ((2,), (3,), (4,), (2, 2), (2, 3), (4, 2), (2, 2, 2))
AXES = ("x", "y", "z")


@dataclass(frozen=True)
class Program:
    """A logical module and what to run it on."""

    seed: int
    module: HloModule
    num_devices: int
    mesh: dict[str, int]

    def inputs(self) -> list[np.ndarray[Any, np.dtype[Any]]]:
        return inputs_of(self.module, self.seed)


def generate(seed: int, focus: str = "") -> Program:
    """The program of ``seed``: 3 to 25 operations, up to 5 parameters and 4 outputs, annotated at random.

    ``focus`` names an operation of the table that is to be frequent.
    """
    rng = np.random.default_rng([seed, 0])
    sizes = MESHES[int(rng.integers(len(MESHES)))]
    mesh = dict(zip(AXES, sizes, strict=False))
    module = HloModule(f"random_{seed}")
    entry = module.new_computation("main")
    module.entry = entry
    style = STYLES[int(rng.integers(len(STYLES)))]
    w = Writer(
        rng, module, Builder(entry), mesh, style, parameters=[], focus=focus, annotate=constrain
    )
    w.free_axes = list(mesh)
    if style.shardy:
        module.frontend_attributes = (("xla.sdy.meshes", shardy_meshes(mesh)),)
    for _ in range(w.integer(1, 2)):
        w.parameter(F32, w.dims(w.integer(1, 3)))
    write_operations(w, w.integer(3, 25))
    for parameter in w.parameters or ():
        if w.chance(0.8):
            annotate_parameter(w, parameter.hlo)
    _write_root(w)
    # The entry was made first; callees stand before their callers.
    module.computations = module.computations_post_order()
    return Program(seed, module, math.prod(sizes), mesh)


def programs() -> st.SearchStrategy[Program]:
    return st.integers(0, 2**32 - 1).map(generate)


def _write_root(w: Writer) -> None:
    """Up to four values that nothing uses (else the last one), as a tuple or, if there is one, bare.

    Shardy's result shardings are custom calls on the outputs, GSPMD's stand on the root.
    """
    unused = [v for v in w.pool if not v.hlo.users] or [w.pool[-1]]
    chosen = unused[-4:]
    entry = w.builder.computation
    if w.style.shardy and w.chance(0.6):
        chosen = [
            constrain(w, v, "xla.sdy.FuncResultSharding") if w.chance(0.7) else v for v in chosen
        ]
    bare = len(chosen) == 1 and w.chance(0.5)
    entry.root = chosen[0].hlo if bare else w.builder.tuple([v.hlo for v in chosen])
    if not w.style.shardy and w.chance(0.7):
        shardings = [gspmd(w, random_spec(w, v.dims)) for v in chosen]
        entry.root.sharding = shardings[0] if bare else HloSharding.tuple_of(tuple(shardings))
