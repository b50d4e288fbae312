"""Halo arithmetic against its definition: element by element, device by device."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioner.devices.axes import DeviceAxes
from partitioner.devices.device_lines import mirror_pairs, shift_pairs
from partitioner.ops.halo import HaloWindow, exchange_cost, halo_widths, sliding, trimmed
from partitioner.ops.halo_windows import contracting
from spmd.ops.window import WindowDimension

WINDOWS = st.builds(HaloWindow, st.integers(1, 9), st.integers(-6, 6), st.integers(1, 12))


@given(WINDOWS, st.integers(1, 30), st.integers(2, 5))
def test_reach_is_the_furthest_any_device_looks(window: HaloWindow, size: int, shards: int) -> None:
    widths = halo_widths(window, size, shards)
    begins = [k * window.step + window.start - k * widths.tile for k in range(shards)]
    assert widths.left == max(0, *(-b for b in begins))
    assert widths.right == max(0, *(b + window.size - widths.tile for b in begins))


@given(WINDOWS, st.integers(1, 30), st.integers(2, 5))
def test_the_price_of_an_exchange_is_what_neighbours_send(
    window: HaloWindow, size: int, shards: int
) -> None:
    """Element by element: those of another device's tile that the pieces around a tile hold."""
    widths = halo_widths(window, size, shards)
    sent = 0
    for k in range(shards):
        around = range(k * widths.tile - widths.left, (k + 1) * widths.tile + widths.right)
        sent += sum(0 <= e < shards * widths.tile and e // widths.tile != k for e in around)
    heavy = 1e9
    assert exchange_cost(widths, shards, heavy) // heavy == sent // shards


DIMENSIONS = st.builds(
    WindowDimension,
    size=st.integers(1, 4),
    stride=st.integers(1, 3),
    padding_low=st.integers(-2, 4),
    padding_high=st.just(0),
    base_dilation=st.integers(1, 3),
    window_dilation=st.integers(1, 2),
)


def real_elements(window: WindowDimension, position: int) -> set[tuple[int, int]]:
    """(element of the sequence, tap of the window) that result ``position`` combines; -inf..inf, no ends."""
    found = set()
    for tap in range(window.size):
        place = position * window.stride - window.padding_low + tap * window.window_dilation
        if place % window.base_dilation == 0:
            found.add((place // window.base_dilation, tap))
    return found


@given(DIMENSIONS, st.integers(1, 5), st.integers(0, 3))
def test_a_local_window_combines_what_the_whole_one_does(
    window: WindowDimension, tile: int, device: int
) -> None:
    local = sliding(window, tile)
    if local is None:
        return
    halo, inner = local
    assert inner.output_size(halo.size) == tile
    begin = device * halo.step + halo.start
    for position in range(tile):
        wanted = real_elements(window, device * tile + position)
        inside = {
            (begin + element, tap)
            for element, tap in real_elements(inner, position)
            if 0 <= element < halo.size
        }
        assert inside == wanted


@given(DIMENSIONS, st.integers(1, 5), st.integers(2, 4), st.integers(1, 12))
def test_what_is_trimmed_lies_outside_the_dimension_on_every_device(
    window: WindowDimension, tile: int, shards: int, size: int
) -> None:
    local = sliding(window, tile)
    shorter = local and trimmed(local, size, shards, shards * tile)
    if local is None or shorter is None:
        return
    (halo, inner), (kept, padded) = local, shorter
    assert padded.output_size(kept.size) == tile
    low = kept.start - halo.start
    for k in range(shards):
        begin = k * halo.step + halo.start
        cut = [*range(low), *range(low + kept.size, halo.size)]
        assert not any(0 <= begin + e < size for e in cut)
    for position in range(tile):
        moved = {(e + low, tap) for e, tap in real_elements(padded, position)}
        assert moved == real_elements(inner, position)


def test_windows_that_begin_at_different_places_are_declined() -> None:
    assert sliding(WindowDimension(size=3, stride=1, base_dilation=2), 3) is None
    assert sliding(WindowDimension(size=3, stride=1, base_dilation=2), 4) is not None


@pytest.mark.parametrize(("dilation", "stride", "low"), [(1, 1, 0), (2, 1, 1), (3, 2, 0)])
def test_a_contraction_meets_its_own_tile_of_the_kernel(
    dilation: int, stride: int, low: int
) -> None:
    whole = WindowDimension(12, stride, low, 0, 1, dilation)
    tile, results = 4, 3
    halo, inner = contracting(whole, tile, results)
    for device in range(3):
        begin = device * halo.step + halo.start
        for position in range(results):
            wanted = {
                (e, tap - device * tile)
                for e, tap in real_elements(whole, position)
                if device * tile <= tap < (device + 1) * tile
            }
            assert {(begin + e, tap) for e, tap in real_elements(inner, position)} == wanted


def test_pairs_shift_along_the_given_axes_alone() -> None:
    axes = DeviceAxes((2, 4))
    assert shift_pairs(axes, (1,), 1).expand() == ((0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7))
    assert shift_pairs(axes, (0,), -1).expand() == ((4, 0), (5, 1), (6, 2), (7, 3))
    assert shift_pairs(axes, (1, 0), 1).expand()[:3] == ((0, 4), (4, 1), (1, 5))
    assert shift_pairs(axes, (0,), 2).expand() == ()


def test_mirrored_devices_change_places_within_their_line() -> None:
    axes = DeviceAxes((2, 3))
    assert mirror_pairs(axes, (1,)).expand() == ((0, 2), (1, 1), (2, 0), (3, 5), (4, 4), (5, 3))
    assert mirror_pairs(axes, (1, 0)).expand()[:3] == ((0, 5), (3, 2), (1, 4))
