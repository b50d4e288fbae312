"""Tests of descriptions made from seconds: made-up ones give the rates that they were made with."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from launch.calibration.convolutions import ConvolutionOptions
from launch.calibration.loops import CopyProbe, ElementProbe, LoopSizes, RowsProbe
from launch.calibration.machine import CalibrationOptions, described
from launch.calibration.probes import Probe
from launch.calibration.products import ProductOptions, ProductProbe
from launch.calibration.programs import NODE_DEVICES, ProgramSizes, StepProbe, exchange_probes
from runtime.program.thunks import CollectiveStartThunk, traverse
from spmd.hlo import Opcode
from spmd.machine.reader import read_machine, write_machine
from spmd.shape import PrimitiveType

P = PrimitiveType
F32 = (P.F32,) * 3
OPTIONS = CalibrationOptions(
    LoopSizes(types=(P.F32,), functions=(Opcode.EXPONENTIAL,)),
    ProductOptions((F32,)),
    ConvolutionOptions(types=()),
)
#: Seconds of an addition, an exp, a short row; of a product's call, multiplication, result element, transposed lhs.
ADD, EXP, ROW, CALL, MULTIPLY, RESULT, TURN = 2e-11, 4e-10, 3e-9, 2e-6, 5e-12, 1e-10, 2e-10
#: Seconds of a thunk, of one with other code, of an exchange and of its bytes.
THUNK, KERNEL, EXCHANGE, BYTE = 4e-9, 1.5e-8, 2e-6, 2e-11
#: Seconds of a step, and of each of its outputs; of a wait at a collective 1 ms after the last one.
STEP, OUTPUT, WAIT = 5e-6, 1.4e-7, 3e-5
#: Bytes per second of copies, near and far.
NEAR, FAR = 1e11, 1e10


def seconds_of(probe: Probe) -> float:
    if isinstance(probe, CopyProbe):
        return probe.working_set / (NEAR if probe.working_set <= 1 << 20 else FAR)
    if isinstance(probe, ElementProbe):
        return 1e-11 + sum(EXP if one is Opcode.EXPONENTIAL else ADD for one in probe.chain)
    if isinstance(probe, RowsProbe):
        short = probe.rows > probe.count
        return ADD * probe.rows * probe.count + (ROW * probe.rows if short else 0.0)
    if isinstance(probe, ProductProbe):
        (m, k, n), (lhs_turned, _) = probe.sizes, probe.transposed
        blocks = [-(-size // 32) * 32 for size in (m, n, k)]
        near = CALL + MULTIPLY * math.prod(blocks) + RESULT * m * n + TURN * m * k * lhs_turned
        more = 1 / FAR - 1 / NEAR if probe.count > 1 else 0.0
        return near + 4 * more * (3 * m * k + 2 * m * k * lhs_turned + 5 * k * n)
    assert isinstance(probe, StepProbe)
    if probe.devices == 2 and "dot(" in probe.text:
        number = probe.text.count("dot(")
        waits = probe.text.count("all-reduce(") * (EXCHANGE + WAIT)
        return number * 1e-3 + waits
    if probe.devices == 2:
        size = 4 * int(probe.text.split("ENTRY")[1].partition("f32[")[2].partition("]")[0])
        more = 1 / FAR - 1 / NEAR if 3 * size > 1 << 20 else 0.0
        of_kernels = probe.text.count(" add(") * (THUNK + size * BYTE)
        collectives = 3 * EXCHANGE + 1.5 * size * BYTE + 0.5 * 5 * size * more
        return 1e-5 + of_kernels + probe.text.count("all-reduce(") * collectives
    outputs = probe.text.count("negate(")
    if outputs:
        return STEP + outputs * (THUNK + OUTPUT)
    alike = "multiply" not in probe.text
    return 1e-5 + (probe.text.count("f32[16]") - 2) * (THUNK if alike else THUNK + KERNEL)


def test_a_description_has_the_rates_that_its_seconds_were_made_with() -> None:
    seconds = {p: seconds_of(p) for family in OPTIONS.families() for p in family.probes}
    machine = described("here", OPTIONS, seconds)
    rates = machine.rates_of(P.F32)
    assert rates.simple == pytest.approx(1 / ADD)
    assert rates.transcendental == pytest.approx(1 / EXP)
    assert machine.byte_seconds(1 << 18) == pytest.approx(1 / NEAR)
    assert machine.byte_seconds(1 << 30) == pytest.approx(1 / FAR)
    assert machine.row_seconds == pytest.approx(ROW)
    assert (machine.thunk_seconds, machine.kernel_seconds) == pytest.approx((THUNK, KERNEL))
    assert (machine.step_seconds, machine.output_seconds) == pytest.approx((STEP, OUTPUT))
    assert machine.wait_seconds == pytest.approx(WAIT)
    (way,) = machine.exchanges
    assert way.devices == NODE_DEVICES
    assert (way.latency, way.bandwidth) == pytest.approx((EXCHANGE, 1 / BYTE))
    assert way.uncached_slowdown == pytest.approx(0.5)
    large = machine.products[0]
    assert large.holds(512, 512, 512)
    assert large.call_seconds == pytest.approx(CALL, rel=0.01)
    assert large.multiply_seconds == pytest.approx(MULTIPLY, rel=0.01)
    assert large.result_seconds == pytest.approx(RESULT, rel=0.01)
    assert large.lhs_transposed_seconds == pytest.approx(TURN, rel=0.01)
    assert large.uncached_slowdowns((False, False)) == pytest.approx(
        (3.0, 5.0, 0.0), rel=0.02, abs=1e-6
    )
    assert large.uncached_slowdowns((True, True)) == pytest.approx(
        (5.0, 5.0, 0.0), rel=0.02, abs=1e-6
    )
    assert read_machine(write_machine(machine).encode(), "here.json") == machine


def test_a_step_that_was_disturbed_still_gives_a_thunk_some_time() -> None:
    """The longer program may take less than the shorter one where that was disturbed."""
    seconds = {p: seconds_of(p) for family in OPTIONS.families() for p in family.probes}
    disturbed = {
        p: 1.0 if isinstance(p, StepProbe) and p.text.count("f32[16]") < 50 else found
        for p, found in seconds.items()
    }
    machine = described("here", OPTIONS, disturbed)
    assert 0 < machine.thunk_seconds < 1e-6


def test_collectives_of_an_exchange_stay_as_many_as_are_counted() -> None:
    """Three in each round, and none in the programs whose time is subtracted."""
    sizes = ProgramSizes(elements=(256,))
    found = [
        sum(isinstance(t, CollectiveStartThunk) for t in traverse(probe.compiled().program.thunks))
        for probe in exchange_probes(sizes)
    ]
    assert found == [*(3 * rounds for rounds in sizes.exchanges), 0, 0]


def test_equal_probes_are_one() -> None:
    """A probe that two programs need is timed once."""
    again = replace(OPTIONS)
    first, second = (
        {p for family in options.families() for p in family.probes} for options in (OPTIONS, again)
    )
    assert first == second
