"""Tests of results that a replica group holds once: which they are, the same bits as in private memory, less memory."""

from __future__ import annotations

import random
import threading
import time

import numpy as np
import pytest
from shared_memory_ranks import SharedMemoryRank, run_shared_memory_ranks

from runtime.buffers import shared_results
from runtime.buffers.types import AllocationKind, Color
from runtime.cpu.executor import LoadedDevice
from runtime.executable import Executable
from runtime.program.kernel import CPU_KERNELS, Action, Kernel, KernelArrays, KernelLibrary
from runtime.saved import save_bytes
from runtime.saved_program import load_bytes
from spmd.hlo import HloModule
from spmd.shape import ArrayShape
from tests.runtime.programs import SHARING, compiled

ROWS, COLUMNS = ((0, 1), (2, 3)), ((0, 2), (1, 3))


def held_once(executable: Executable) -> dict[str, Color]:
    """Names of values in memory of groups."""
    assignment = executable.program.assignment
    return {
        value.name: color
        for value in assignment.values
        if (color := assignment.allocations[value.slice.allocation].color).groups
    }


def test_large_results_that_nobody_writes_over_are_held_once() -> None:
    executable = compiled(SHARING["shared"], keep_order=True)
    rows, columns = Color(0, ROWS), Color(0, COLUMNS)
    assert held_once(executable) == {"g": rows, "h": rows, "k": columns}
    assert executable.stats.shared == ((2, 2 * 16384),)


def test_lives_in_flight_in_loops_and_in_branches() -> None:
    assert held_once(compiled(SHARING["shared_loop"], keep_order=True)).keys() == {"g", "h", "w.1"}
    in_flight = held_once(compiled(SHARING["shared_async"], keep_order=True))
    assert in_flight.keys() == {"s.1", "s{1}", "t{1}"}
    assert in_flight["t{1}"].groups == COLUMNS


def test_state_results_of_branches_and_outputs_are_private() -> None:
    assert held_once(compiled(SHARING["shared_nowhere"], keep_order=True)) == {}


def private(text: str, monkeypatch: pytest.MonkeyPatch) -> Executable:
    with monkeypatch.context() as patch:
        patch.setattr(shared_results, "_candidates", lambda *_: [])
        return compiled(text, keep_order=True)


@pytest.mark.parametrize("name", SHARING)
def test_all_heaps_together_are_no_larger_than_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, alone = compiled(SHARING[name], keep_order=True), private(SHARING[name], monkeypatch)
    assert shared.stats.temp <= alone.stats.temp
    assert shared.stats.temp_on_a_node <= shared.stats.temp
    heaps = shared.program.assignment.of_kind(AllocationKind.HEAP)
    assert shared.stats.arena == sum(heap.size for heap in heaps)


def inputs_of(module: HloModule, seed: int) -> list[np.ndarray]:
    """Numbers of each device's own; what decides branches is the same everywhere."""
    result = []
    for parameter in module.entry.parameters:
        shape = parameter.array_shape
        assert isinstance(shape, ArrayShape)
        if shape.dims:
            values = np.random.default_rng(seed).standard_normal(shape.dims)
            result.append(values.astype(shape.element_type.numpy))
        else:
            result.append(np.ones((), shape.element_type.numpy))
    return result


class Dawdling(KernelLibrary):
    """Kernels that begin late, now on one device and now on another."""

    def bind(self, kernel: Kernel, arrays: KernelArrays) -> Action:
        action = CPU_KERNELS.bind(kernel, arrays)
        luck = random.Random(threading.get_ident())

        def late() -> None:
            time.sleep(luck.choice((0, 0, 0.002)))
            action()

        return late


@pytest.mark.parametrize("name", SHARING)
def test_same_bits_as_in_private_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices of one process are compared, and ranks that share windows and run the native steps.

    No rank has another's pace.
    """
    executable, alone = (
        compiled(SHARING[name], keep_order=True),
        private(SHARING[name], monkeypatch),
    )
    count = executable.num_devices
    inputs = [inputs_of(executable.module, seed) for seed in range(count)]
    want = alone.run_devices(inputs)
    with monkeypatch.context() as patch:
        patch.setattr(LoadedDevice, "kernels", Dawdling("late"))
        on_ranks = run_shared_memory_ranks(
            count, lambda rank: three_steps(executable, rank, inputs)
        )
    for got in (executable.run_devices(inputs), *zip(*on_ranks, strict=True)):
        for outputs, wanted in zip(got, want, strict=True):
            assert [x.tobytes() for x in outputs] == [x.tobytes() for x in wanted]


def three_steps(
    executable: Executable, rank: SharedMemoryRank, inputs: list[list[np.ndarray]]
) -> list[list[np.ndarray]]:
    device = executable.load(rank)
    return [device.run(inputs[rank.rank]) for _ in range(3)]


def test_groups_allocate_once() -> None:
    """Members find each other's writes in their memory; other groups and private heaps are apart."""
    executable = compiled(SHARING["shared"], keep_order=True)
    allocations = executable.program.assignment.allocations
    (rows,) = (a for a in allocations if a.color.groups == ROWS)

    def mark(rank: SharedMemoryRank) -> list[int]:
        memory = executable.load(rank).memory
        rank.barrier()
        if rank.rank in (0, 3):
            memory.bytes_of(rows)[:] = 100 + rank.rank
        rank.barrier()
        return [int(memory.bytes_of(a)[0]) for a in allocations if a.color.groups]

    assert run_shared_memory_ranks(4, mark) == [[100, 0], [100, 0], [103, 0], [103, 0]]


def test_dumps_and_saved_executables_tell() -> None:
    executable = compiled(SHARING["shared"], keep_order=True)
    text = executable.dump_buffers()
    placed = "placed best fit, largest first"
    assert f"size 16384, shared by {{{{0,1}},{{2,3}}}}, preallocated-temp, {placed}:" in text
    assert " of temp, 32768 held once by 2 devices\n" in text
    assert load_bytes(save_bytes(executable), check=True).stats == executable.stats
