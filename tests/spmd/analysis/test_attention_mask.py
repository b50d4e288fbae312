"""Windows of visible positions that the analysis of masks finds."""

from __future__ import annotations

from itertools import product

import pytest

from runtime.gpu.triton.structure import structures_of
from spmd.analysis.attention_mask import (
    AttentionWindow,
    HiddenScores,
    Masks,
    visible_window,
    zero_in_all,
)
from spmd.hlo import HloComputation, HloInstruction
from spmd.text.parser import parse_module
from tests.runtime.gpu.triton.fusions import Attention

CAUSAL = Attention(mask="causal", hidden="-1048576")


@pytest.mark.parametrize("rows", [1, 5, 12])
@pytest.mark.parametrize("columns", [1, 7, 12])
def test_visible_positions(rows: int, columns: int) -> None:
    limits = (None, -20, -3, -1, 0, 1, 4, 20)
    for low, high in product(limits, limits):
        distances = [c - r for r in range(rows) for c in range(columns)]
        seen = sum(
            (low is None or low <= distance) and (high is None or distance <= high)
            for distance in distances
        )
        assert AttentionWindow(low, high).visible(rows, columns) == seen


@pytest.mark.parametrize("which", ["forward", "of_rows", "of_columns"])
@pytest.mark.parametrize(
    ("mask", "window"),
    [
        ("", AttentionWindow()),
        ("causal", AttentionWindow(high=0)),
        ("late", AttentionWindow(high=-40)),
        ("window", AttentionWindow(-9, 0)),
        ("bias", AttentionWindow()),
        ("padding", AttentionWindow()),  # an operand, of which nothing is known
    ],
)
@pytest.mark.parametrize("hidden", ["-inf", "-1e9"])
def test_the_window_of_a_fusion(
    which: str, mask: str, window: AttentionWindow, hidden: str
) -> None:
    # Depths of queries and values that are those of the scores.
    attention = Attention(mask=mask, hidden=hidden, d=53, e=53)
    assert visible_window(parse_module(getattr(attention, which)()).entry) == window


def test_a_maximum_alone_sees_all_scores() -> None:
    """Without a softmax, hidden scores may be the largest of a row."""
    text = CAUSAL.forward(results="m").replace("(f32[2,1,37]) tuple(m)", "f32[2,1,37] copy(m)")
    fused = parse_module(text).entry
    fused.remove_unused()
    assert visible_window(fused) == AttentionWindow()


def named(fused: HloComputation, name: str) -> HloInstruction:
    return next(x for x in fused.instructions if x.name == name)


def hidden(text: str) -> HiddenScores | None:
    fused = parse_module(text).entry
    (structure,) = structures_of(fused)
    return Masks(structure.axes).hidden_scores(named(fused, "x"))


@pytest.mark.parametrize(
    ("mask", "window"),
    [
        ("causal", AttentionWindow(high=0)),
        ("late", AttentionWindow(high=-40)),
        ("window", AttentionWindow(-9, 0)),
    ],
)
def test_masks_of_positions(mask: str, window: AttentionWindow) -> None:
    assert hidden(Attention(mask=mask, hidden="-1048576").forward()) == HiddenScores(
        window, -1048576
    )


@pytest.mark.parametrize(
    ("direction", "window"),
    [
        ("GE", AttentionWindow(high=0)),
        ("GT", AttentionWindow(high=-1)),
        ("LE", AttentionWindow(low=0)),
        ("LT", AttentionWindow(low=1)),
        ("EQ", AttentionWindow(0, 0)),
        ("NE", None),
    ],
)
def test_directions(direction: str, window: AttentionWindow | None) -> None:
    text = CAUSAL.forward().replace("direction=GE", f"direction={direction}")
    assert hidden(text) == (None if window is None else HiddenScores(window, -1048576))


@pytest.mark.parametrize(
    "change", [("select(mask, scaled, leasts)", "select(mask, leasts, scaled)")]
)
def test_a_mask_of_hidden_positions(change: tuple[str, str]) -> None:
    assert hidden(CAUSAL.forward().replace(*change)) == HiddenScores(
        AttentionWindow(low=1), -1048576
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("constant(-1048576)", "constant(-10)"),  # scores may be as small
        ("compare(row, column)", "compare(row, row)"),
        ("iota(), iota_dimension=1", "iota(), iota_dimension=0"),
    ],
)
def test_other_masks_hide_nothing(old: str, new: str) -> None:
    text = CAUSAL.forward()
    assert old in text
    assert hidden(text.replace(old, new)) is None


def test_either_of_two_masks() -> None:
    text = (
        Attention(mask="window", hidden="-1048576")
        .forward()
        .replace("and(after, near)", "or(after, near)")
    )
    assert hidden(text) is None


def test_gradients_are_zero_outside_of_the_band() -> None:
    fused = parse_module(CAUSAL.of_columns()).entry
    (structure,) = structures_of(fused)
    masks = Masks(structure.axes)
    selected, weights = (
        masks.zero_outside(named(fused, "ds_in")),
        masks.zero_outside(named(fused, "p_in")),
    )
    assert selected is not None
    assert (selected.window, selected.conditions) == (AttentionWindow(high=0), ())
    assert weights is not None
    assert [number for _, number in weights.conditions] == [-1048576]
    both = zero_in_all([selected, weights])
    assert both is not None
    assert both.conditions == weights.conditions
    assert zero_in_all([selected, None]) is None
    assert masks.zero_outside(named(fused, "dp")) is None
