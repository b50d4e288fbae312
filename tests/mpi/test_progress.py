"""Tests that messages between nodes land while a rank computes and looks at them, and do not change its results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from collectives.communicator.interface import Communicator
from launch.ranks.rank_executable import RankExecutable
from runtime.cpu.collective.collective_engine import native_collective_engine
from runtime.cpu.step.segment import ProgressPoints
from runtime.executable import Executable
from runtime.timeline.events import CollectiveEvent, events_of
from tests.runtime.programs import SUM, compiled, random_inputs

pytestmark = pytest.mark.mpi(min_size=2)

PRODUCTS = 8
"""Products of some milliseconds each, which run while 4 MB are on their way."""

_CHAIN = "\n".join(
    f"  p{n + 1} = f32[512,512] dot(p{n}, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    for n in range(PRODUCTS)
)
PROGRAM = f"""HloModule flying, num_partitions=COUNT
{SUM}
ENTRY main {{
  x = f32[1048576] parameter(0)
  p0 = f32[512,512] parameter(1)
  b = f32[512,512] parameter(2)
  s = f32[1048576] all-reduce-start(x), channel_id=1, replica_groups={{{{RANKS}}}}, use_global_device_ids=true, to_apply=sum
{_CHAIN}
  d = f32[1048576] all-reduce-done(s)
  ROOT o = (f32[1048576], f32[512,512]) tuple(d, p{PRODUCTS})
}}
"""


@pytest.fixture(scope="module")
def apart() -> Iterator[Communicator]:
    """Yield a communicator whose neighbouring ranks are on two nodes."""
    from mpi4py import MPI

    from collectives.communicator.mpi.communicator import MpiCommunicator

    comm = MpiCommunicator(
        timeout_seconds=60,
        engine=native_collective_engine(),
        node_id=f"node {MPI.COMM_WORLD.rank % 2}",
    )
    yield comm
    comm.close()


def loaded(comm: Communicator, *, reference_every: int = 0) -> RankExecutable:
    ranks = ",".join(map(str, range(comm.size)))
    text = PROGRAM.replace("COUNT", str(comm.size)).replace("RANKS", ranks)
    executable: Executable = compiled(text, keep_order=True)
    executable.record, executable.reference_every = True, reference_every
    return RankExecutable.of(executable, comm)


def outcome(executable: RankExecutable, steps: int) -> bytes:
    """Return what each of ``steps`` steps gives, which has to be the same."""
    inputs = random_inputs(executable.module, executable.communicator.rank)
    inputs = [(0.02 * array).astype(np.float32) for array in inputs]
    results = set()
    for _ in range(steps):
        executable.communicator.barrier()
        (own,) = executable.run_devices([inputs])
        results.add(b"".join(array.tobytes() for array in own))
    (result,) = results
    return result


def flights(executable: RankExecutable) -> list[CollectiveEvent]:
    """Return the events of the collectives of all recorded steps."""
    (steps,) = executable.recorded_steps()
    root = executable.program.thunks
    return [
        e for s in steps for e in events_of(root, s.timestamps) if isinstance(e, CollectiveEvent)
    ]


def test_a_message_lands_while_kernels_run(
    apart: Communicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 3
    looking = loaded(apart)
    with monkeypatch.context() as patch:
        patch.setattr(ProgressPoints, "start", lambda *_: None)
        busy = loaded(apart)
    want = outcome(busy, steps)
    assert outcome(looking, steps) == want
    # A rank that never looks finds out only when it waits.
    assert all(flight.landed >= flight.wait_start for flight in flights(busy))
    # Where ranks share cores, a rank may get none for so long that its peers wait. One step of many is enough.
    early = False
    for _ in range(20):
        early |= any(flight.landed < flight.wait_start for flight in flights(looking))
        found = apart.all_gather_bytes(bytes([early]))
        if all(map(any, found)):
            return
        assert outcome(looking, steps) == want
    pytest.fail(f"on some ranks no message landed early: {found}")


def test_blocking_steps_give_the_same_bits(apart: Communicator) -> None:
    executable = loaded(apart, reference_every=2)
    outcome(executable, 4)
    (steps,) = executable.recorded_steps()
    assert [step.is_blocking for step in steps] == [False, True, False, True]
    for step in steps:
        events = events_of(executable.program.thunks, step.timestamps)
        (flight,) = [event for event in events if isinstance(event, CollectiveEvent)]
        (start,) = [event for event in events if event.kind == "CollectiveStart"]
        assert (flight.wait_start == start.end) is step.is_blocking


def test_blocking_steps_within_a_node_give_the_same_bits(comm: Communicator) -> None:
    ranks = ",".join(map(str, range(comm.size)))
    text = PROGRAM.replace("COUNT", str(comm.size)).replace("RANKS", ranks)
    want = outcome(RankExecutable.of(compiled(text, keep_order=True), comm), 1)
    executable = compiled(text, keep_order=True)
    executable.reference_every = 2
    assert outcome(RankExecutable.of(executable, comm), 3) == want
