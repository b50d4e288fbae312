"""Actions of collectives as data: which copies become one."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from collectives.communicator.actions.shared_actions import (
    CollectiveAction,
    CopyRows,
    Signal,
    join_copies,
)


def moves_of(actions: Sequence[CollectiveAction]) -> list[tuple[int, int, int] | Signal]:
    """Return the moves of single rows, as (source, target, bytes), in their order, and the signals between them."""
    found: list[tuple[int, int, int] | Signal] = []
    for action in actions:
        if isinstance(action, Signal):
            found.append(action)
            continue
        assert isinstance(action, CopyRows)
        found += [
            (
                action.source + k * action.source_stride,
                action.target + k * action.target_stride,
                action.row_bytes,
            )
            for k in range(action.rows)
        ]
    return found


def copies_at(
    sources: Sequence[int], targets: Sequence[int], row_bytes: int = 4
) -> list[CollectiveAction]:
    return [
        CopyRows(source, target, 1, row_bytes, 0, 0)
        for source, target in zip(sources, targets, strict=True)
    ]


def test_rows_at_equal_distances_are_one_copy() -> None:
    (joined,) = join_copies(copies_at(range(100, 900, 100), range(0, 32, 4)))
    assert joined == CopyRows(100, 0, 8, 4, 100, 4)


def test_a_signal_a_gap_or_another_size_ends_a_copy() -> None:
    assert len(list(join_copies(copies_at([0, 10, 25], [0, 4, 8])))) == 2
    assert len(list(join_copies([*copies_at([0], [0], 4), *copies_at([10], [4], 8)]))) == 2
    assert len(list(join_copies([*copies_at([0], [0]), Signal(8, 1), *copies_at([10], [4])]))) == 3


_STEPS = st.one_of(
    st.builds(
        CopyRows,
        st.sampled_from([0, 16, 32, 48, 64, 100]),
        st.sampled_from([200, 204, 208, 212, 220]),
        st.integers(1, 3),
        st.sampled_from([4, 8]),
        st.sampled_from([16, 32]),
        st.sampled_from([4, 8]),
    ),
    st.just(Signal(0, 1)),
)


@given(st.lists(_STEPS, max_size=8))
def test_joined_actions_move_the_same_rows_in_the_same_order(
    actions: list[CollectiveAction],
) -> None:
    assert moves_of(list(join_copies(actions))) == moves_of(actions)
