"""Index maps against what the evaluator moves: every element of an operand that is read stands where the map says."""

from __future__ import annotations

import itertools

import pytest

from runtime.fusion.index_maps import Index, identity, operand_accesses, reshaped
from spmd.hlo import HloInstruction
from spmd.text.parser import parse_module


def parsed(body: str) -> HloInstruction:
    return parse_module(f"HloModule t\nENTRY e {{\n{body}\n}}\n").entry.root


def read(root: HloInstruction) -> list[tuple[tuple[object, ...], ...]]:
    accesses = operand_accesses(root, identity(len(root.dims)))
    return [tuple(index.key for index in access.map) for access in accesses]


V = [("variable", d) for d in range(4)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x = f32[4,8] parameter(0)\nROOT r = f32[4,8] negate(x)", [(V[0], V[1])]),
        ("x = f32[8] parameter(0)\nROOT r = f32[4,8] broadcast(x), dimensions={1}", [(V[1],)]),
        ("x = f32[] parameter(0)\nROOT r = f32[4,8] broadcast(x), dimensions={}", [()]),
        (
            "x = f32[8,4] parameter(0)\nROOT r = f32[4,8] transpose(x), dimensions={1,0}",
            [(V[1], V[0])],
        ),
        ("x = f32[4,1,8] parameter(0)\nROOT r = f32[4,8] reshape(x)", [(V[0], ("zero",), V[1])]),
        (
            "x = f32[4,8] parameter(0)\nROOT r = f32[4,3] slice(x), slice={[0:4],[2:8:2]}",
            [(V[0], ("affine", V[1], 2, 2))],
        ),
    ],
)
def test_where_an_operand_is_read(text: str, wanted: list[object]) -> None:
    assert read(parsed(text)) == wanted


def value(index: Index, at: tuple[int, ...]) -> int:
    """Return the value of the expression at a point of the loops, from its key alone."""
    return _of_key(index.key, at)


def _of_key(key: tuple[object, ...], at: tuple[int, ...]) -> int:
    kind, *rest = key
    if kind == "variable":
        return at[int(str(rest[0]))]
    if kind == "zero":
        return 0
    if kind == "merge":
        half = len(rest) // 2
        total = 0
        for part, size in zip(rest[:half], rest[half:], strict=True):
            total = total * int(str(size)) + _of_key(part, at)  # type: ignore[arg-type]
        return total
    assert kind == "divide"
    part, below, size, _ = rest
    return _of_key(part, at) // int(str(below)) % int(str(size))  # type: ignore[arg-type]


SIZES = [(4, 6), (24,), (2, 2, 6), (2, 12), (1, 4, 1, 6), (3, 8), (8, 3, 1), (2, 3, 2, 2), (6, 4)]


@pytest.mark.parametrize(("target", "source"), list(itertools.product(SIZES, SIZES)))
def test_a_reshape_keeps_the_row_major_number(
    target: tuple[int, ...], source: tuple[int, ...]
) -> None:
    found = reshaped(identity(len(target)), target, source)
    assert len(found) == len(source)
    for number, at in enumerate(itertools.product(*map(range, target))):
        place = 0
        for index, size in zip(found, source, strict=True):
            place = place * size + value(index, at)
        assert place == number
    # There and back again is nothing at all.
    again = reshaped(found, source, target)
    kept = [d for d, size in enumerate(target) if size > 1]
    if len(source) == 1 or len(target) == 1:
        assert [again[d] for d in kept] == [identity(len(target))[d] for d in kept]


def test_a_reshape_of_no_elements_has_a_map() -> None:
    assert len(reshaped(identity(2), (2, 0), (0, 5))) == 2


def test_concatenated_operands_share_the_elements() -> None:
    root = parsed(
        "x = f32[2,3] parameter(0)\ny = f32[6,3] parameter(1)\n"
        "ROOT r = f32[8,3] concatenate(x, y), dimensions={0}"
    )
    accesses = operand_accesses(root, identity(2))
    assert [access.share for access in accesses] == [0.25, 0.75]


def test_a_merged_index_along_the_first_of_concatenated_operands() -> None:
    """The first operand is read at the index itself, whose parts have more values than the operand's dimension."""
    (merged,) = reshaped(identity(2), (3, 3), (9,))
    first, *_ = operand_accesses(
        parsed(
            "x = f32[1,4] parameter(0)\ny = f32[8,4] parameter(1)\n"
            "ROOT r = f32[9,4] concatenate(x, y), dimensions={0}"
        ),
        (merged, identity(3)[2]),
    )
    assert reshaped(first.map, (1, 4), (4, 1)) == (identity(3)[2], Index(("zero",), frozenset()))
    assert reshaped(first.map, (2, 4), (4, 2))
