"""Coverage of random programs: how many reach each cell (cells.py), and each feature of meshes and annotations.

A cell is reached by an instruction that propagation leaves with a dimension of that kind split that way. Shardings are
read from the text of the propagated module; factors.py says what a dimension is to its op. Features are read from the
text of the logical module.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from partitioner.propagate_module import propagate_module
from spmd.hlo import HloInstruction, HloModule
from tests.differential.cells import COLUMNS, PARTIAL, Cell, column_of, every_cell, impossible
from tests.differential.factors import Place, arrays, factors_of, row_of
from tests.differential.tiling import split_tuple

_TILES = re.compile(
    r"\{devices=\[([\d,]+)\][^ }]*(?: last_tile_dims=\{([\w, ]+)\}| (last_tile_dim_replicate))?"
)


@dataclass(frozen=True)
class Split:
    """The split of one array: shards of each dimension, and whether some axes hold copies."""

    shards: tuple[int, ...]
    copies: bool


def cells_of(module: HloModule, num_devices: int) -> frozenset[Cell]:
    """The cells that a program reaches."""
    found: set[Cell] = set()
    for instruction in propagate_module(module, num_devices).all_instructions():
        if instruction.sharding is not None:
            found.update(_cells_of_instruction(instruction))
    return frozenset(found)


def _cells_of_instruction(instruction: HloInstruction) -> Iterable[Cell]:
    operands = [s for o in instruction.operands for s in _splits(o)]
    results = _splits(instruction)
    for factor in factors_of(instruction):
        for place in factor.places:
            for column in _columns(place, results if place.is_result else operands):
                yield Cell(row_of(instruction), factor.kind, column)


def _columns(place: Place, tensors: list[tuple[tuple[int, ...], Split]]) -> Iterable[str]:
    dims, split = tensors[place.tensor]
    column = column_of(dims[place.dim], split.shards[place.dim])
    if column is not None:
        yield column
        if split.copies:
            yield PARTIAL


def _splits(instruction: HloInstruction) -> list[tuple[tuple[int, ...], Split]]:
    """(sizes, split) of each array that the instruction gives."""
    parts = arrays(instruction.shape)
    texts = split_tuple(str(instruction.sharding))
    if len(texts) != len(parts):
        texts = texts * len(parts)
    return [(a.dims, _read(t, a.rank)) for a, t in zip(parts, texts, strict=False)]


@functools.lru_cache(maxsize=4096)
def _read(text: str, rank: int) -> Split:
    found = _TILES.match(text)
    if found is None:
        return Split((1,) * rank, text == "{replicated}")
    sizes = [int(n) for n in found[1].split(",")]
    kinds = (
        [k.strip() for k in found[2].split(",")] if found[2] else ["replicated"] * bool(found[3])
    )
    copies = [n for n, kind in zip(sizes[rank:], kinds, strict=True) if kind == "replicated"]
    return Split(tuple(sizes[:rank]), math.prod(copies) > 1)


# ---- features
_PATTERNS = {
    "partial replication": r"last_tile_dim_replicate",
    "transposed iota": r"<=\[[\d,]+\]T\(",
    "explicit device list": r"\{devices=\[[\d,]+\]\d",
    "mesh with a device order of its own": r"device_ids=\[",
    "sub-axes": r'"\w+\\?":\(\d+\)\d+',
    "open dimensions": r"\?|unspecified_dims",
    "manual subgroups (GSPMD)": r"last_tile_dims=\{manual, replicated\}",
    "manual region (GSPMD)": r"SPMDFullToShardShape",
    "manual region (Shardy)": r"GlobalToLocalShape",
    "collective in a manual region": r" (?:all-reduce|all-gather|all-to-all|reduce-scatter|collective-\w+)\(",
    "while": r" while\(",
    "conditional": r" conditional\(",
    "call": r" call\(",
}
_MESH = re.compile(r"(\w+) = #sdy\.mesh<\[([^\]]*)\]")
_IOTA = re.compile(r"\{devices=\[([\d,]+)\]<=\[([\d,]+)\](T)?")
_MANUAL_AXES = re.compile(r"#sdy<manual_axes\{([^}]*)\}>")
FEATURES = (
    *_PATTERNS,
    "manual subgroups (Shardy)",
    "meshes whose strides do not nest",
    "dimension of size 0",
)


def features_of(text: str) -> frozenset[str]:
    found = {name for name, pattern in _PATTERNS.items() if re.search(pattern, text)}
    axes = {name: _AXIS_SIZE.findall(sizes) for name, sizes in _MESH.findall(text)}
    if any(len(a.split(",")) < len(axes.get("mesh", ())) for a in _MANUAL_AXES.findall(text)):
        found.add("manual subgroups (Shardy)")
    meshes = [[int(n) for n in sizes] for name, sizes in axes.items() if f"<@{name}," in text]
    if not _nest([*meshes, *_iota_digits(text)]):
        found.add("meshes whose strides do not nest")
    if re.search(r"\[(?:\d+,)*0[,\]]", re.sub(r"\{[^}]*\}|backend_config=\S*", "", text)):
        found.add("dimension of size 0")
    return frozenset(found)


_AXIS_SIZE = re.compile(r'"\w+"=(\d+)')


def _iota_digits(text: str) -> list[list[int]]:
    """The digits that each printed iota cuts the device number into (one that is transposed: before it is)."""
    return [
        [int(n) for n in (reshape if transposed else dims).split(",")]
        for dims, reshape, transposed in set(_IOTA.findall(text))
    ]


def _nest(lists: Iterable[list[int]]) -> bool:
    """Return whether the strides of all digits form one chain of divisors."""
    strides = {math.prod(digits[i:]) for digits in lists for i in range(len(digits) + 1)}
    return all(b % a == 0 for a, b in itertools.pairwise(sorted(strides)))


# ---- the table
#: Lines of the page that define its columns.
COLUMN_MEANINGS = (
    "* even: the number of shards divides the size;",
    "* uneven: the size is larger than the number of shards, which does not divide it;",
    "* size < shards: some devices hold only padding;",
    "* partial: the dimension is split, and other axes hold copies of the value.",
)


@dataclass
class Counts:
    """Programs that reach each cell and each feature."""

    programs: int = 0
    failed: int = 0
    cells: Counter[Cell] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)

    def below(self, least: int) -> list[Cell]:
        """Cells that can be reached and were by fewer programs."""
        return [c for c in every_cell() if impossible(c) is None and self.cells[c] < least]

    def as_markdown(self, command: str) -> str:
        reached = [self.cells[c] for c in every_cell() if impossible(c) is None]
        reasons = list(dict.fromkeys(r for c in every_cell() if (r := impossible(c)) is not None))
        lines = [
            "# What the random programs tried",
            "",
            f"`{command}` wrote this page.",
            f"It ran {self.programs} programs; {self.failed} failed.",
            "",
            "Each number counts the programs with an instruction that has a dimension of that kind, split in that way",
            "by propagation. The kinds are defined in `tests/differential/factors/table.py`, and the columns in",
            "`tests/differential/cells.py`:",
            "",
            *COLUMN_MEANINGS,
            "",
            f"{len(reached)} cells can be reached; the smallest count is {min(reached)}.",
            "",
            f"| op | kind | {' | '.join(COLUMNS)} |",
            f"|---|---|{'---|' * len(COLUMNS)}",
        ]
        rows = dict.fromkeys((c.row, c.kind) for c in every_cell())
        for row, kind in sorted(rows):
            numbers = [self._entry(Cell(row, kind, column), reasons) for column in COLUMNS]
            lines.append(f"| {row} | {kind} | {' | '.join(numbers)} |")
        lines += [
            "",
            *(f"[{i}] This cell cannot be reached: {r}." for i, r in enumerate(reasons, start=1)),
        ]
        lines += ["", "| feature | programs |", "|---|---|"]
        lines += [f"| {name} | {self.features[name]} |" for name in FEATURES]
        return "\n".join(lines) + "\n"

    def _entry(self, cell: Cell, reasons: list[str]) -> str:
        reason = impossible(cell)
        return str(self.cells[cell]) if reason is None else f"[{reasons.index(reason) + 1}]"

    def as_json(self, command: str) -> str:
        cells = [
            {"op": c.row, "kind": c.kind, "split": c.column, "programs": self.cells[c], "impossible": impossible(c)}
            for c in every_cell()
        ]  # fmt: skip
        features = {name: self.features[name] for name in FEATURES}
        about = {"command": command, "programs": self.programs, "failed": self.failed}
        return json.dumps({**about, "cells": cells, "features": features}, indent=1) + "\n"
