"""The slowest of many devices: the expected maximum of normal variables, from tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectives.simulate.stragglers import slowest_of
from spmd.machine.named import machine_named
from spmd.shape import PrimitiveType

MACHINE = replace(machine_named("dgx-h100"), spread=0.01)


def lost(devices: int, probability: float = 0.5) -> float:
    """Return the fraction of the product rate that the slowest device lacks."""
    rates = [
        machine.rates_of(PrimitiveType.BF16).matrix
        for machine in (MACHINE, slowest_of(MACHINE, devices, probability))
    ]
    return 1.0 - rates[1] / rates[0]


@pytest.mark.parametrize(("devices", "deviations"), [(8, 1.42), (128, 2.59), (512, 3.03)])
def test_expected_maximum_of_normal_variables(devices: int, deviations: float) -> None:
    """Means of the maximum (Teichroew, 1956); its median lies up to 5 % lower."""
    assert lost(devices) == pytest.approx(0.01 * deviations, rel=0.05)


def test_more_devices_and_more_certainty_are_slower() -> None:
    assert lost(1) == 0.0
    assert 0.0 < lost(2) < lost(16) < lost(1024) < lost(1024, 0.95)


def test_devices_without_spread_are_alike() -> None:
    machine = replace(MACHINE, spread=0.0)
    assert slowest_of(machine, 1024) is machine
