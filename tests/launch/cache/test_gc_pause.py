"""The collector is held back, and as it was afterwards."""

from __future__ import annotations

import gc

import pytest

from launch.cache.gc_pause import fewer_collections


def test_thresholds_come_back() -> None:
    before = gc.get_threshold()
    with fewer_collections():
        inside = gc.get_threshold()
        assert inside[0] > before[0]
        with fewer_collections():
            assert gc.get_threshold() == inside
        assert gc.get_threshold() == inside
    assert gc.get_threshold() == before
    with pytest.raises(ValueError, match="raised"), fewer_collections():
        raise ValueError("raised")
    assert gc.get_threshold() == before


@pytest.mark.parametrize("own", [(0, 10, 10), (1_000_000, 10, 10)])
def test_who_has_it_off_or_rarer_keeps_it_so(own: tuple[int, int, int]) -> None:
    before = gc.get_threshold()
    gc.set_threshold(*own)
    try:
        with fewer_collections():
            assert gc.get_threshold() == own
    finally:
        gc.set_threshold(*before)
