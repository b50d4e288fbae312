"""Tests of calibrating a network: seconds give the exchange that they were made with, and timed programs are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from launch.calibration.network import ConcurrentRun, NetworkSeconds, Transfer, joined, program
from launch.options import CompileOptions
from launch.pipeline import compile_module
from spmd.machine.named import machine_named
from spmd.machine.reader import read_machine, write_machine
from spmd.text.parser import parse_module

#: Seconds of a message without bytes, and of each byte.
LATENCY, BYTE = 2e-4, 8e-9
MESSAGES = tuple((size, LATENCY + size * BYTE) for size in (1 << 10, 1 << 16, 1 << 22))
BESIDE = (
    ConcurrentRun(0.02, 0.05, 0.054),
    ConcurrentRun(0.02, 0.09, 0.2),
    ConcurrentRun(0.02, 0.05, 0.051),
)
FOUND = NetworkSeconds(MESSAGES, nodes=3, devices=4, concurrent=BESIDE)


def test_an_exchange_has_what_its_seconds_were_made_with() -> None:
    way = FOUND.exchange
    assert way.latency == pytest.approx(LATENCY)
    assert way.ports == 1
    # Four devices send at the same time by the node's port.
    assert way.bandwidth == pytest.approx(4 / BYTE)
    assert way.busy == pytest.approx(0.2)
    assert way.devices % 4 == 0


def test_what_a_link_takes_at_once_after_a_pause_does_not_count_for_its_rate() -> None:
    """A bucket of tokens that is full lets 32 KB pass."""
    free = 1 << 15
    messages = tuple((size, LATENCY + max(size - free, 0) * BYTE) for size, _ in MESSAGES)
    way = replace(
        FOUND, messages=(*messages, (1 << 20, LATENCY + ((1 << 20) - free) * BYTE))
    ).exchange
    assert way.bandwidth == pytest.approx(4 / BYTE)
    assert LATENCY - free * BYTE <= way.latency <= LATENCY


def test_a_message_that_takes_so_long() -> None:
    assert FOUND.bytes_in(0.01) == pytest.approx((0.01 - LATENCY) / BYTE, abs=1)
    assert FOUND.bytes_in(0.0) == 1 << 10
    assert FOUND.seconds_of(1 << 20) == pytest.approx(LATENCY + (1 << 20) * BYTE)


@pytest.mark.parametrize(("both", "busy"), [(0.049, 0.0), (0.05, 0.0), (0.07, 1.0), (0.09, 1.0)])
def test_a_share_is_none_to_all(both: float, busy: float) -> None:
    assert ConcurrentRun(0.02, 0.05, both).busy == pytest.approx(busy)


def test_the_network_stands_beside_what_is_known_of_a_node() -> None:
    node = machine_named("cpu-avx512")
    machine = joined(node, FOUND)
    inside, between = machine.exchanges
    assert inside == replace(node.exchanges[0], devices=4)
    assert between == FOUND.exchange
    assert machine.source.startswith(node.source)
    assert machine.source.endswith("what joins nodes: measured with 12 ranks on 3 nodes")
    assert read_machine(write_machine(machine).encode(), "test") == machine
    assert machine.overlaps
    # Measured again, it takes the place of what was there.
    assert joined(machine, FOUND) == machine


@pytest.mark.parametrize(("size", "count"), [(4096, 0), (0, 3), (4096, 3)])
def test_programs_pass_a_message_to_the_next_node_and_multiply(size: int, count: int) -> None:
    ranks, devices = 4, 2
    text = program(Transfer(ranks, devices), size, count, product=16)
    options = CompileOptions(partitioned=True)
    executable = compile_module(parse_module(text), ranks, options)
    generator = np.random.default_rng(1)
    places = executable.inputs
    inputs = [generator.random(place.shape.dims, np.float32) for place in places]
    state = executable.put(inputs)
    parts = [[np.asarray(tile) for tile in state.tiles[rank]] for rank in range(ranks)]
    done = executable.run(state)
    for rank in range(ranks):
        results = [np.asarray(tile) for tile in done.tiles[rank]]
        if size:
            sender = parts[(rank - devices) % ranks]
            np.testing.assert_array_equal(results.pop(0), sender[0])
        if count:
            first, other = (part.astype(np.float64) for part in parts[rank][-2:])
            wanted = first @ np.linalg.matrix_power(other, count)
            np.testing.assert_allclose(results.pop(0), wanted, rtol=1e-5)
        assert not results
