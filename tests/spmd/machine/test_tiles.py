"""Products in tiles: waves, splits, and what was measured elsewhere of shapes that no constant was chosen by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spmd.machine.description import MachineDescription
from spmd.machine.named import machine_named
from spmd.machine.tiles import Tile, TiledProducts
from spmd.shape import PrimitiveType

ONE_TILE = TiledProducts((Tile(128, 128, 1.0),), (1,), 0.0, 1e30)
H100 = machine_named("dgx-h100").as_attained()
H200 = machine_named("dgx-h200").as_attained()
A100 = machine_named("dgx-a100").as_attained()
GB200 = machine_named("gb200-nvl72").as_attained()
BF16, F16 = PrimitiveType.BF16, PrimitiveType.F16
FP8, FP4 = PrimitiveType.F8E4M3FN, PrimitiveType.F4E2M1FN


def test_tiles_come_in_waves() -> None:
    """Ten processors take as long for eleven tiles as for twenty."""
    of_rows = [ONE_TILE.seconds(1e12, 10, (1, 128 * n, 64, 128), 2, 1e12) for n in (1, 10, 11, 20)]
    one_wave = 2.0 * 128 * 128 * 64 * 10 / 1e12
    assert of_rows == pytest.approx([one_wave, one_wave, 2 * one_wave, 2 * one_wave])


def test_a_part_of_a_tile_takes_as_long_as_a_tile() -> None:
    assert ONE_TILE.seconds(1e12, 1, (1, 1, 64, 1), 2, 1e12) == pytest.approx(
        ONE_TILE.seconds(1e12, 1, (1, 128, 64, 128), 2, 1e12)
    )


def test_batches_fill_waves_together() -> None:
    assert ONE_TILE.seconds(1e12, 10, (10, 128, 64, 128), 2, 1e12) == pytest.approx(
        ONE_TILE.seconds(1e12, 10, (1, 128, 64, 128), 2, 1e12)
    )


def test_few_tiles_split_the_contracted_dimension() -> None:
    split = replace(ONE_TILE, splits=(1, 4))
    deep = (1, 128, 4096, 128)
    assert split.seconds(1e12, 10, deep, 2, 1e30) == pytest.approx(
        ONE_TILE.seconds(1e12, 10, deep, 2, 1e30) / 4
    )
    assert split.seconds(1e12, 10, deep, 2, 1e6) == ONE_TILE.seconds(1e12, 10, deep, 2, 1e6)


def test_results_are_written() -> None:
    written = replace(ONE_TILE, result_bandwidth=1e9)
    assert written.seconds(1e30, 10, (3, 5, 7, 11), 2, 1e30) == pytest.approx(3 * 5 * 11 * 2 / 1e9)


def tera_flops(machine: MachineDescription, kind: PrimitiveType, m: int, k: int, n: int) -> float:
    """Return the rate of a product of which the launch is a part."""
    assert machine.tiled is not None
    seconds = machine.start_seconds() + machine.tiled.seconds(
        machine.product_rate(kind),
        machine.units,
        (1, m, k, n),
        2,
        machine.shared_levels[0].bandwidth,
    )
    return 2e-12 * m * k * n / seconds


@pytest.mark.parametrize(
    ("machine", "size", "measured", "within"),
    [
        # Azure/AI-benchmarking-guide: cuBLASLt, e4m3, 10,000 warm-up calls. Of the H100, 8192 and above chose the rate.
        (H100, (1024, 1024, 1024), 274, 0.2),
        (H100, (2048, 2048, 2048), 1011, 0.1),
        (H100, (4096, 4096, 4096), 1217, 0.05),
        (H100, (6144, 12288, 12288), 1351, 0.05),
        (H100, (1024, 1024, 2145), 411, 0.05),
        (H100, (802816, 768, 192), 664, 0.25),
        (H200, (2048, 2048, 2048), 1013, 0.1),
        (H200, (4096, 4096, 4096), 1249, 0.05),
    ],
)
def test_sustained_fp8_products_of_other_sizes(
    machine: MachineDescription, size: tuple[int, int, int], measured: float, within: float
) -> None:
    assert tera_flops(machine, FP8, *size) == pytest.approx(measured, rel=within)


@pytest.mark.parametrize(
    ("machine", "kind", "size", "measured", "within"),
    [
        # Azure/AI-benchmarking-guide: cuBLASLt, 10,000 warm-up calls. 8192 cubed and above chose the rates. The shapes of
        # tiles are the H100's: small products of the GB200, which has larger tiles, are estimated worst.
        (A100, F16, (1024, 1024, 1024), 119.4, 0.1),
        (A100, F16, (2048, 2048, 2048), 221.8, 0.2),
        (A100, F16, (4096, 4096, 4096), 228.0, 0.05),
        (A100, F16, (6144, 12288, 12288), 250.8, 0.05),
        (A100, F16, (1024, 1024, 2145), 132.8, 0.05),
        (A100, F16, (802816, 768, 192), 157.8, 0.1),
        (GB200, FP8, (1024, 1024, 1024), 489.2, 0.2),
        (GB200, FP8, (2048, 2048, 2048), 2243.6, 0.36),
        (GB200, FP8, (4096, 4096, 4096), 2834.6, 0.17),
        (GB200, FP8, (6144, 12288, 12288), 2895.6, 0.07),
        (GB200, FP8, (1024, 1024, 2145), 1022.2, 0.31),
        (GB200, FP8, (802816, 768, 192), 1459.5, 0.13),
        (GB200, FP4, (4096, 4096, 4096), 5177.3, 0.05),
        (GB200, FP4, (802816, 768, 192), 2216.7, 0.42),
    ],
)
def test_sustained_products_of_other_gpus(
    machine: MachineDescription,
    kind: PrimitiveType,
    size: tuple[int, int, int],
    measured: float,
    within: float,
) -> None:
    assert tera_flops(machine, kind, *size) == pytest.approx(measured, rel=within)


@pytest.mark.parametrize(
    ("depth", "measured"),
    [(256, 386), (512, 520), (1024, 628), (2048, 705), (4096, 736), (8192, 758), (16384, 766)],
)
def test_flat_products_reach_less(depth: int, measured: float) -> None:
    """tile-ai/tilelang, benchmark/matmul: 8192 x 8192 on an H800 (the same processors), bursts: the rate at sustained
    power is lower, by as much at each depth."""
    sustained = tera_flops(H100, BF16, 8192, depth, 8192)
    assert sustained == pytest.approx(0.95 * measured, rel=0.12)
