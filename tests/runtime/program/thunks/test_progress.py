"""Tests of looks at collectives in flight: where programs have them, what they do, and that results stay the same."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from collectives.communicator.actions.shared_actions import Await, CollectiveProgram
from collectives.communicator.liveness.status_table import private_position
from collectives.communicator.loopback.process_memory import ProcessMemory
from collectives.communicator.native_collective import NativeCollective
from runtime.cpu.collective.action_records import LANDED, UNTIMED
from runtime.cpu.collective.collective_engine import native_collective_engine
from runtime.cpu.executor import LoadedDevice
from runtime.cpu.kernels.native_call import NativeAction, NativeCall
from runtime.cpu.step.device_table import LOG_WORDS, TIMESTAMP_WORDS, Table
from runtime.cpu.step.segment import INTERVAL_SECONDS, ProgressPoints, Segment, SegmentRow
from runtime.cpu.step.worker import Worker
from runtime.executable import Executable
from runtime.program.thunks import CollectiveDoneThunk, CollectiveStartThunk, traverse
from tests.runtime.cpu.sharing.test_share import counts
from tests.runtime.programs import SUM, compiled, random_inputs


def program(between: str, root: str = "y") -> str:
    """Return a program that computes ``between`` on ``x``, ``a`` and ``b`` while an all-reduce is in flight."""
    return f"""HloModule flying, num_partitions=2
{SUM}
condition {{
  s = (s32[], f32[512,512], f32[512,512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT more = pred[] compare(i, n), direction=LT
}}
body {{
  s = (s32[], f32[512,512], f32[512,512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  u = f32[512,512] get-tuple-element(s), index=1
  v = f32[512,512] get-tuple-element(s), index=2
  w = f32[512,512] dot(u, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT t = (s32[], f32[512,512], f32[512,512]) tuple(next, w, v)
}}
counting {{
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  f = f32[] get-tuple-element(s), index=1
  g = f32[] cosine(f)
  ROOT t = (s32[], f32[]) tuple(next, g)
}}
counted {{
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(400)
  ROOT more = pred[] compare(i, n), direction=LT
}}
large {{
  p = f32[1024,1024] parameter(0)
  ROOT q = f32[1024,1024] dot(p, p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
small {{
  p = f32[1024,1024] parameter(0)
  ROOT q = f32[1024,1024] negate(p)
}}
ENTRY main {{
  x = f32[64] parameter(0)
  a = f32[1024,1024] parameter(1)
  b = f32[512,512] parameter(2)
  before = f32[512,512] dot(b, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  s = f32[64] all-reduce-start(x), channel_id=1, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=sum
  zero = s32[] constant(0)
{between}
  d = f32[64] all-reduce-done(s)
  after = f32[512,512] dot(before, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT o = (f32[64], f32[512,512], f32[]) tuple(d, after, {root})
}}
"""


SCALAR = "  z = f32[] constant(0)\n  y = f32[] reduce({}, z), dimensions={{0,1}}, to_apply=sum"
PRODUCT = "  p = f32[1024,1024] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
BETWEEN = {
    "a product": PRODUCT + SCALAR.format("p"),
    "short kernels": "\n".join(
        f"  p{n + 1} = f32[512,512] negate({f'p{n}' if n else 'b'})" for n in range(30)
    )
    + "\n"
    + SCALAR.format("p30"),
    "a loop": """  i = (s32[], f32[512,512], f32[512,512]) tuple(zero, b, b)
  l = (s32[], f32[512,512], f32[512,512]) while(i), condition=condition, body=body
  p = f32[512,512] get-tuple-element(l), index=1
"""
    + SCALAR.format("p"),
    "a loop of numbers": """  f = f32[] constant(0.5)
  i = (s32[], f32[]) tuple(zero, f)
  l = (s32[], f32[]) while(i), condition=counted, body=counting
  y = f32[] get-tuple-element(l), index=1""",
    "a choice": """  f = f32[] constant(0.5)
  e = f32[64] slice(x), slice={[0:64]}
  m = f32[] constant(0)
  h = f32[] reduce(e, m), dimensions={0}, to_apply=sum
  c = pred[] compare(h, m), direction=GT
  p = f32[1024,1024] conditional(c, a, a), true_computation=large, false_computation=small
"""
    + SCALAR.format("p"),
}


def run_twice(executable: Executable) -> list[list[bytes]]:
    steps = []
    for _ in range(2):
        inputs = [random_inputs(executable.module, d) for d in executable.devices]
        steps += [[x.tobytes() for x in own] for own in executable.run_devices(inputs)]
    return steps


def needing_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make collectives need progress, as those by messages between nodes do."""
    bind = ProcessMemory.bind

    def bound(*arguments: object) -> NativeCollective:
        collective = bind(*arguments)  # type: ignore[arg-type]
        collective.needs_progress = True
        return collective

    monkeypatch.setattr(ProcessMemory, "bind", bound)


def loaded(text: str, reference_every: int = 0) -> tuple[Executable, LoadedDevice]:
    executable = compiled(text, keep_order=True)
    executable.reference_every = reference_every
    (device, _) = executable.load_local().devices
    return executable, device


def flight(device: LoadedDevice) -> tuple[int, int]:
    """Return the rows of the only collective's start and done."""
    thunks = list(traverse(device.program.thunks))
    kinds = [type(thunks[row.number]) for row in device.table.rows]
    return kinds.index(CollectiveStartThunk), kinds.index(CollectiveDoneThunk)


def looks(device: LoadedDevice) -> list[SegmentRow]:
    return [row for row in device.table.rows if row.polls]


@pytest.mark.parametrize("name", BETWEEN)
def test_looks_lie_between_start_and_done(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = program(BETWEEN[name])
    plain, device = loaded(text)
    assert looks(device) == []
    want = run_twice(plain)
    needing_progress(monkeypatch)
    executable, device = loaded(text)
    first, last = flight(device)
    where = [n for n, row in enumerate(device.table.rows) if row.polls]
    assert where
    assert first < where[0] <= where[-1] < last
    assert run_twice(executable) == want


@pytest.mark.parametrize("name", BETWEEN)
def test_programs_without_overlap_have_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needing_progress(monkeypatch)
    _, device = loaded(program(BETWEEN[name]), reference_every=1)
    assert looks(device) == []


def test_blocking_steps_do_not_cut_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows choose by the step: a blocking step runs the whole product, another one its pieces."""
    text = program(BETWEEN["a product"])
    plain, _ = loaded(text)
    want = run_twice(plain)
    needing_progress(monkeypatch)
    executable, device = loaded(text, reference_every=2)
    rows = device.table.rows
    (share,) = [n for n, row in enumerate(rows) if row.is_share]
    choose, whole, jump = rows[share - 3 : share]
    assert {row.number for row in (choose, whole, jump)} == {rows[share].number}
    assert (choose.away, jump.away) == (3, 2)
    assert isinstance(whole.function, NativeCall)
    assert run_twice(executable) == want


def test_no_more_than_the_interval_is_computed_between_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needing_progress(monkeypatch)
    _, device = loaded(program(BETWEEN["short kernels"]))
    first, last = flight(device)
    spent, most = 0.0, 0.0
    thunks = {device.number_of(thunk): thunk for thunk in traverse(device.program.thunks)}
    for row in device.table.rows[first + 1 : last]:
        if row.polls:
            spent = 0.0
        else:
            spent += device.seconds_of(thunks[row.number])
            most = max(most, spent)
    assert 0.0 < most <= INTERVAL_SECONDS


def test_a_long_kernel_is_cut() -> None:
    points = ProgressPoints()
    assert points.pieces(10 * INTERVAL_SECONDS) == 1
    points.start("r")
    points.start("s")
    assert [points.pieces(t * INTERVAL_SECONDS) for t in (0.5, 1.0, 1.5, 10.0)] == [1, 1, 2, 10]
    points.finish("r")
    assert points.are_needed
    points.finish("s")
    assert not points.are_needed


def test_a_look_is_due_before_the_interval_is_over() -> None:
    points = ProgressPoints()
    points.start("r")
    spent = [0.4, 0.4, 0.4, 1.5, 0.1, 0.8, 0.3]
    found = [points.around(n, t * INTERVAL_SECONDS, Segment()).rows for n, t in enumerate(spent)]
    assert [len(rows) for rows in found] == [0, 0, 1, 1, 1, 0, 1]


class Alone:
    """A collective whose peer is a counter."""

    def __init__(self) -> None:
        self.counters = np.zeros(1, np.int64)
        steps = (Await((1,), (self.counters.ctypes.data,), 1),)
        (self.steps,) = native_collective_engine().load([CollectiveProgram(steps, steps, 1)])

    @property
    def address(self) -> int:
        return self.steps.address


class Present:
    """A stamp of the time."""

    address = 0


class Landing:
    """A stamp of the time at which a collective, which is timed from now on, was found complete."""

    def __init__(self, collective: Alone) -> None:
        header = collective.address
        ctypes.c_int64.from_address(header + 8 * UNTIMED).value = 0
        self.address = header + 8 * LANDED


def landed_after(between: str) -> int:
    """Return the nanoseconds from the time of the wait until the collective was found complete.

    ``between`` says what is done while it is in flight: l is a look, p is the arrival of the peer.
    """
    collective = Alone()
    comes = counts(collective.counters, 0)
    assert isinstance(comes, NativeAction)
    (call,) = comes.calls
    kinds = {
        "l": SegmentRow.progress(1),
        "p": SegmentRow(1, call, call.record),
    }
    rows = (
        SegmentRow.start(0, collective),
        *(kinds[kind] for kind in between),
        SegmentRow.stamp(2, 0, Present()),  # type: ignore[arg-type]
        SegmentRow.wait(2, collective),
        SegmentRow.stamp(2, 1, Landing(collective)),  # type: ignore[arg-type]
    )
    log = np.zeros(LOG_WORDS + 2 * TIMESTAMP_WORDS, np.int64)
    log[1] = 2
    table = Table(Segment(rows, (collective,)), private_position(), log=log.ctypes.data)
    Worker([table], lambda *_: True).run()
    assert log[0] == 2
    stamps = log[LOG_WORDS:].reshape(2, TIMESTAMP_WORDS)
    waited, landed = (int(at) for _, at in stamps)
    return landed - waited


def test_a_look_finds_what_has_come() -> None:
    assert landed_after("p") > 0
    assert landed_after("pl") < 0
    assert landed_after("lp") > 0


def test_looks_that_come_too_soon_do_nothing() -> None:
    """A look right after another one does nothing, unless the system takes the core away in between."""
    assert max(landed_after("lpl") for _ in range(20)) > 0
