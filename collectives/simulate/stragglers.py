"""The slowest of many devices of one description, for which all others wait."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

from spmd.machine.description import MachineDescription


def slowest_of(
    machine: MachineDescription, devices: int, probability: float = 0.5
) -> MachineDescription:
    """Return ``machine`` with the product rates of the slowest of ``devices`` devices.

    The rates are normally distributed with the standard deviation ``machine.spread``. With ``probability``, no device
    is slower than the result: 0.5 gives the median of the slowest. A program whose devices wait for each other in each
    step takes as long as its slowest device.
    """
    deviations = NormalDist().inv_cdf(probability ** (1.0 / devices))
    share = 1.0 - machine.spread * deviations
    if devices == 1 or not machine.spread or share >= 1.0:
        return machine
    rates = tuple(
        (kind, replace(one, matrix=one.matrix * share, attention=one.attention * share))
        for kind, one in machine.rates
    )
    table = machine.fused_attention
    if table is not None:
        table = replace(table, attained=table.attained * share)
    return replace(machine, rates=rates, fused_attention=table)
