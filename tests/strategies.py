"""Random logical modules x shardings x meshes.

``generate(seed)`` gives the same program for the same seed, everywhere.
Values that decide (indices, comparisons, sort keys) are the same bits however a program is partitioned, and nearly all
sums are exact, so that results can be compared for equality: see tests/differential/generator/writer.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule
from spmd.hlo.clone import clone_module
from tests.differential.cells import PARTIAL, SMALL, Cell
from tests.differential.generator import (  # noqa: F401 - fill the table
    calls,
    combining,
    elementwise,
    indexed,
    linear,
    manual,
    moving,
    rarer,
    scans,
    windows,
)
from tests.differential.generator.annotations import (
    annotate_outputs,
    annotate_parameter,
    constrain,
    shardy_meshes,
)
from tests.differential.generator.control import write_operations, write_what_is_missing
from tests.differential.generator.manual import FREE_AXES_WANTED, GSPMD_EDGES, SHARDY_EDGES
from tests.differential.generator.steering import aims_of
from tests.differential.generator.table import OPERATIONS
from tests.differential.generator.writer import F32, STYLES, OtherMesh, Style, Writer, inputs_of

MESHES: tuple[tuple[int, ...], ...] = (
    (2,), (3,), (4,), (6,), (2, 2), (2, 3), (3, 2), (4, 2), (2, 2, 2), (3, 4),
)  # fmt: skip
#: A dozen devices are dear: only for programs over two meshes.
_CHANCES = (1, 1, 1, 0.4, 1.2, 1.2, 0.8, 1.2, 1.2, 0.2)
AXES = ("x", "y", "z")
OTHER_AXES = ("u", "v", "t")
#: How often a mesh has a device order of its own, and how often there are two meshes.
_OWN_ORDER, _TWO_MESHES = 0.15, 0.25


@dataclass(frozen=True)
class Program:
    """A logical module and what to run it on."""

    seed: int
    module: HloModule
    num_devices: int
    mesh: dict[str, int]
    aims: tuple[Cell, ...]

    def inputs(self) -> list[np.ndarray[Any, np.dtype[Any]]]:
        return inputs_of(self.module, self.seed)


def generate(seed: int, focus: str = "") -> Program:
    """The program of ``seed``: 3 to 20 operations and what it aims at, up to 5 parameters and 4 outputs, annotated at random.

    ``focus`` names an operation of the table that is to be frequent. The seed says which cells of the table of counts
    the program aims at.
    """
    rng = np.random.default_rng([seed, 0])
    rows = next((e.rows for e in OPERATIONS if e.name == focus), ())
    aims = aims_of(seed, rows)
    sizes = _mesh_sizes(rng, aims)
    mesh = dict(zip(AXES, sizes, strict=False))
    module = HloModule(f"random_{seed}")
    entry = module.new_computation("main")
    module.entry = entry
    style = _style(rng, aims)
    w = Writer(
        rng, module, Builder(entry), mesh, style, parameters=[], focus=focus, aims=aims, annotate=constrain
    )  # fmt: skip
    w.free_axes = list(mesh)
    if w.chance(_OWN_ORDER):
        w.order = _any_order(w)
    if w.chance(_TWO_MESHES):
        w.other = _other_mesh(w)
    if style.shardy:
        module.frontend_attributes = (("xla.sdy.meshes", shardy_meshes(w)),)
    for _ in range(w.integer(1, 2)):
        w.parameter(F32, w.dims(w.integer(1, 3)))
    write_operations(w, w.integer(3, 20))
    write_what_is_missing(w)
    for parameter in w.parameters or ():
        if w.chance(0.8):
            annotate_parameter(w, parameter.hlo)
    _write_root(w)
    # The entry was made first; callees stand before their callers.
    module.computations = module.computations_post_order()
    # The copy has users in the order of the instructions, as if it were read from text.
    return Program(seed, clone_module(module), math.prod(sizes), mesh, aims)


def _mesh_sizes(rng: np.random.Generator, aims: Sequence[Cell]) -> tuple[int, ...]:
    """Copies, and axes that a manual region leaves free, take a mesh of two axes; a size below the shards many devices."""
    two = any(cell.column == PARTIAL or cell.row in FREE_AXES_WANTED for cell in aims)
    many = any(cell.column == SMALL for cell in aims)
    chances = np.array(
        [
            chance if (len(sizes) > 1 or not two) and (math.prod(sizes) > 3 or not many) else 0.0
            for sizes, chance in zip(MESHES, _CHANCES, strict=True)
        ]
    )
    return MESHES[int(rng.choice(len(MESHES), p=chances / chances.sum()))]


def _style(rng: np.random.Generator, aims: Sequence[Cell]) -> Style:
    """Edges of manual regions are written in one spelling alone."""
    rows = [cell.row for cell in aims]
    if any(row in GSPMD_EDGES for row in rows):
        return Style(gspmd=True, shardy=False)
    spellings = [s for s in STYLES if s.shardy or not any(row in SHARDY_EDGES for row in rows)]
    return spellings[int(rng.integers(len(spellings)))]


def _any_order(w: Writer) -> tuple[int, ...]:
    return tuple(w.shuffled(range(math.prod(w.mesh.values()))))


def _other_mesh(w: Writer) -> OtherMesh:
    """Another factorization of the same devices, or the same in another order, or both."""
    n = math.prod(w.mesh.values())
    ways = [sizes for sizes in (*MESHES, (4, 3), (2, 6), (2, 4)) if math.prod(sizes) == n]
    others = [sizes for sizes in ways if sizes != tuple(w.mesh.values())]
    if not others or w.chance(0.3):
        axes = dict(zip(OTHER_AXES, w.choose(ways), strict=False))
        return OtherMesh(axes, _any_order(w))
    return OtherMesh(dict(zip(OTHER_AXES, w.choose(others), strict=False)), w.order)


def _depends_on(hlo: HloInstruction, source: HloInstruction) -> bool:
    seen: set[HloInstruction] = set()
    work = [hlo]
    while work:
        instruction = work.pop()
        if instruction not in seen:
            seen.add(instruction)
            work += instruction.operands
    return source in seen


def _write_root(w: Writer) -> None:
    """Write the root: up to four values that nothing uses (else the last one), as a tuple or as a single bare value.

    There are more where what the program aims at would be lost. Shardy's result shardings are custom calls on the
    outputs, GSPMD's stand on the root.
    """
    unused = [v for v in w.pool if not v.hlo.users] or [w.pool[-1]]
    chosen = unused[-4:]
    for _, instruction in w.steered:
        if not any(_depends_on(v.hlo, instruction) for v in chosen):
            chosen = [*[v for v in unused if _depends_on(v.hlo, instruction)][:1], *chosen]
    entry = w.builder.computation
    if w.style.shardy and w.chance(0.6):
        chosen = [
            constrain(w, v, "xla.sdy.FuncResultSharding") if w.chance(0.7) else v for v in chosen
        ]
    bare = len(chosen) == 1 and w.chance(0.5)
    entry.root = chosen[0].hlo if bare else w.builder.tuple([v.hlo for v in chosen])
    if not w.style.shardy and w.chance(0.7):
        annotate_outputs(w, entry.root, chosen)
