"""Tests of shared windows: every rank sees every segment; too little room gives a message; nothing is left behind."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from loopback_ranks import run_ranks

from collectives.communicator.loopback.communicator import LoopbackCommunicator
from collectives.communicator.node.node import Node
from collectives.communicator.node.shared_window import (
    Directory,
    Memory,
    SharedMemoryProvider,
    SharedWindow,
    open_window,
)
from spmd.errors import RunError


class Full(Directory):
    """A directory that has room for one page."""

    def free_bytes(self) -> int:
        return 4096


class Boastful(Directory):
    """A directory that claims to have room, whatever there is."""

    def free_bytes(self) -> int:
        return 1 << 60


class OutOfReach(Memory):
    """Memory that tells the other ranks a path at which they find another file."""

    def create(self) -> tuple[int, str]:
        descriptor, _ = super().create()
        return descriptor, "/dev/null"


def opened(
    comm: LoopbackCommunicator,
    num_bytes: int,
    *places: SharedMemoryProvider,
    home: int | None = None,
) -> tuple[SharedWindow, np.ndarray]:
    node = Node(tuple(range(comm.size)), cores=1)
    return open_window(comm.all_gather_bytes, node, comm.rank, num_bytes, 1, places, home)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_every_rank_sees_every_segment(kind: str, tmp_path: Path) -> None:
    place = Memory() if kind == "memory" else Directory(str(tmp_path))

    def program(comm: LoopbackCommunicator) -> list[int]:
        window, own = opened(comm, 100 * (comm.rank + 1), place)
        assert own.nbytes == 100 * (comm.rank + 1)
        assert own.ctypes.data % 64 == 0
        assert not own.any()
        own[:] = comm.rank + 1
        comm.barrier()
        sums = [int(window.segment(rank, 100).sum()) for rank in range(comm.size)]
        comm.barrier()
        return sums

    assert run_ranks(3, program) == [[100, 200, 300]] * 3
    assert list(tmp_path.iterdir()) == []


def test_an_array_is_found_by_its_offset() -> None:
    def program(comm: LoopbackCommunicator) -> None:
        window, own = opened(comm, 1000, Memory())
        assert window.offset_of(own[64:128]) == 64
        assert window.offset_of(np.zeros(8)) is None
        assert window.address(comm.rank, 64) == own[64:].ctypes.data

    run_ranks(2, program)


def test_ranks_that_live_in_one_segment_share_it() -> None:
    """The odd ranks of four share the segment of rank 3, which has the larger of the sizes that they asked for."""

    def program(comm: LoopbackCommunicator) -> tuple[tuple[int, ...], int]:
        home = 3 if comm.rank % 2 else None
        window, own = opened(comm, 5000 * (comm.rank + 1), Memory(), home=home)
        own[:100] += comm.rank == 1 or comm.rank % 2 == 0
        comm.barrier()
        assert int(own[0]) == 1
        assert window.address(comm.rank) == own.ctypes.data
        assert window.address(1) == window.address(3)
        segment = window.segment(3, 20_000)
        segment[-1] = 1  # the whole of it is there
        return window.sharers(comm.rank), own.nbytes

    assert run_ranks(4, program) == [
        ((0,), 5000),
        ((1, 3), 10_000),
        ((2,), 15_000),
        ((1, 3), 20_000),
    ]


@pytest.mark.usefixtures("own_objects_alone_are_collected")
def test_memory_is_free_when_its_last_array_is() -> None:
    def program(comm: LoopbackCommunicator) -> None:
        window, own = opened(comm, 1000, Memory())
        part = own[10:20]
        del own
        gc.collect()
        assert window.is_alive
        del part
        gc.collect()
        assert not window.is_alive

    run_ranks(2, program)


def test_a_place_without_room_is_passed_over(tmp_path: Path) -> None:
    full, roomy = Full(str(tmp_path)), Directory(str(tmp_path))

    def program(comm: LoopbackCommunicator) -> str:
        window, _ = opened(comm, 10_000, full, roomy)
        return window.provider

    assert run_ranks(2, program) == [str(tmp_path)] * 2
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_another_rank_cannot_open_is_passed_over(tmp_path: Path) -> None:
    def program(comm: LoopbackCommunicator) -> str:
        window, _ = opened(comm, 100, OutOfReach(), Directory(str(tmp_path)))
        return window.provider

    assert run_ranks(2, program) == [str(tmp_path)] * 2


def test_where_no_place_serves_every_rank_hears_why(tmp_path: Path) -> None:
    missing = Directory(str(tmp_path / "missing"))

    def program(comm: LoopbackCommunicator) -> str:
        with pytest.raises(RunError) as caught:
            opened(comm, 10_000, Full(str(tmp_path)), missing)
        return str(caught.value)

    messages = run_ranks(2, program)
    assert messages[0] == messages[1]
    assert "no shared memory for 10000 bytes per rank" in messages[0]
    assert f"{tmp_path} has 4096 bytes free, 24576 are needed" in messages[0]
    assert "No such file or directory" in messages[0]


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a file system")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.mark.parametrize("home", [None, 1])
def test_a_full_file_system_is_an_error_message_and_no_bus_error(
    home: int | None, small_file_system: Path
) -> None:
    def program(comm: LoopbackCommunicator) -> None:
        with pytest.raises(RunError, match="No space left on device"):
            opened(comm, 100_000, Boastful(str(small_file_system)), home=home)

    run_ranks(2, program)
    assert list(small_file_system.iterdir()) == []
