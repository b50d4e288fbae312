"""Tests that native thunks run as one table, in order, in loops and branches, each under its own number.

Python runs the other thunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

from collectives.communicator.liveness.status_table import THUNK, private_position
from runtime.buffers.types import ArrayView, BufferSlice
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.executor import LoadedDevice
from runtime.cpu.kernels.native_call import NOTHING, NativeAction, in_order, native_call
from runtime.cpu.step.device_table import Table
from runtime.cpu.step.prepare import prepare, prepares
from runtime.cpu.step.segment import Action, ProgressPoints, segment_of
from runtime.cpu.step.segment_ir import JUMPS
from runtime.cpu.step.worker import Worker
from runtime.program.strides import StridedView
from runtime.program.thunks import (
    BufferUse,
    ConditionalThunk,
    Thunk,
    ThunkSequence,
    WhileThunk,
    traverse,
)
from spmd.shape import ArrayShape, PrimitiveType

#: Record: a log (its length first), a position, a counter, a limit, a byte. Logs the position, counts, and sets the
#: byte to whether the counter is still below the limit.
LOGGING = """
define internal i64 @word(ptr %record, i64 %number) alwaysinline {
  %p = getelementptr i64, ptr %record, i64 %number
  %w = load i64, ptr %p
  ret i64 %w
}

define internal ptr @pointer(ptr %record, i64 %number) alwaysinline {
  %p = getelementptr ptr, ptr %record, i64 %number
  %w = load ptr, ptr %p
  ret ptr %w
}

define void @logging(ptr %record) {
  %log = call ptr @pointer(ptr %record, i64 0)
  %position = call ptr @pointer(ptr %record, i64 1)
  %number = load i64, ptr %position
  %length = load i64, ptr %log
  %longer = add i64 %length, 1
  store i64 %longer, ptr %log
  %slot = getelementptr i64, ptr %log, i64 %longer
  store i64 %number, ptr %slot
  %counter = call ptr @pointer(ptr %record, i64 2)
  %limit = call i64 @word(ptr %record, i64 3)
  %before = load i64, ptr %counter
  %count = add i64 %before, 1
  store i64 %count, ptr %counter
  %below = icmp ult i64 %count, %limit
  %byte = zext i1 %below to i8
  %flag = call ptr @pointer(ptr %record, i64 4)
  store i8 %byte, ptr %flag
  ret void
}
"""


@cache
def logging_code() -> NativeLibrary:
    return host_jit().compile(LOGGING, ("logging",))


@dataclass
class Device:
    """The parts of a device that thunks need which touch no buffers but ``selector``."""

    root: Thunk
    selector: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros((), np.bool_))
    recorder: None = None
    progress: ProgressPoints = field(default_factory=ProgressPoints)

    def __post_init__(self) -> None:
        self.position = private_position()
        self.log = np.zeros(4000, np.int64)
        self.numbers = {id(thunk): number for number, thunk in enumerate(traverse(self.root))}

    def number_of(self, thunk: Thunk) -> int:
        return self.numbers[id(thunk)]

    def array(self, place: ArrayView) -> np.ndarray[Any, Any]:
        return self.selector

    @property
    def seen(self) -> list[int]:
        return [int(number) for number in self.log[1 : self.log[0] + 1]]

    def run(self, times: int = 1) -> None:
        segment = segment_of(0, prepare(self.root, self))  # type: ignore[arg-type]
        worker = Worker([Table(segment, self.position)], lambda *_: True)
        for _ in range(times):
            worker.run()


@dataclass(frozen=True)
class Logs(Thunk):
    """A thunk that logs its number in the device; the selector is whether it ran less than ``limit`` times."""

    native: bool = True
    limit: int = 0

    def buffer_uses(self) -> Iterator[BufferUse]:
        return iter(())


@prepares(Logs)
def prepare_logs(thunk: Logs, program: LoadedDevice) -> Action:
    device: Any = program
    counter, flag = np.zeros(1, np.int64), np.zeros(1, np.bool_)
    target = device.selector if thunk.limit else flag
    words = np.frombuffer(device.position, np.int64)[THUNK:]
    arrays = (device.log, words, counter, target)
    addresses = [array.ctypes.data for array in arrays]
    record = np.array([*addresses[:3], thunk.limit, addresses[3]], np.int64)
    call = native_call(logging_code(), "logging", record, arrays)
    return call if thunk.native else lambda: call()


@dataclass(frozen=True)
class Fails(Logs):
    """A thunk that raises an error."""


@prepares(Fails)
def prepare_fails(thunk: Fails, program: LoadedDevice) -> Action:
    def act() -> None:
        raise ValueError("planted")

    return act


NOWHERE = ArrayView(BufferSlice(0, 0, 1), StridedView.dense(ArrayShape(PrimitiveType.PRED, ())))


def sequence(name: str, thunks: Sequence[Thunk]) -> ThunkSequence:
    return ThunkSequence(name, tuple(thunks))


def test_native_thunks_are_one_segment_under_their_own_numbers() -> None:
    device = Device(sequence("main", [Logs("a"), Logs("b"), Logs("c")]))
    device.run(2)
    assert device.seen == [1, 2, 3, 1, 2, 3]


def test_what_needs_python_keeps_its_place() -> None:
    thunks = [Logs("a"), Logs("b"), Logs("c", native=False), Logs("d")]
    device = Device(sequence("main", thunks))
    device.run()
    assert device.seen == [1, 2, 3, 4]


@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
@pytest.mark.parametrize("trips", [0, 1, JUMPS, 3 * JUMPS + 1])
def test_a_loop_runs_its_condition_once_more_than_its_body(native: bool, trips: int) -> None:
    condition = sequence("condition", [Logs("compare", limit=trips + 1)])
    body = sequence("body", [Logs("one", native), Logs("other")])
    loop = WhileThunk("while", condition, body, NOWHERE, ())
    device = Device(sequence("main", [loop, Logs("after")]))
    device.run()
    numbers = {thunk.name: number for number, thunk in enumerate(traverse(device.root))}
    compare, one, other = (numbers[name] for name in ("compare", "one", "other"))
    assert device.seen == [*[compare, one, other] * trips, compare, numbers["after"]]


def test_loops_within_loops() -> None:
    """The inner condition's count goes on, so later visits find it at its end."""
    inner = WhileThunk(
        "inner",
        sequence("ic", [Logs("in", limit=3)]),
        sequence("ib", [Logs("x")]),
        NOWHERE,
        (),
    )
    outer = WhileThunk(
        "outer", sequence("oc", [Logs("out", limit=3)]), sequence("ob", [inner]), NOWHERE, ()
    )
    device = Device(sequence("main", [outer]))
    device.run()
    names = {number: thunk.name for number, thunk in enumerate(traverse(device.root))}
    assert [names[n] for n in device.seen] == [
        "out",
        "in",
        "x",
        "in",
        "x",
        "in",
        "out",
        "in",
        "out",
    ]


@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
@pytest.mark.parametrize(
    ("selector", "branch"),
    [(np.int32(0), 0), (np.int32(1), 1), (np.int32(2), 2), (np.int32(-1), 2), (np.int32(7), 2)],
)
def test_an_index_chooses_a_branch(native: bool, selector: np.int32, branch: int) -> None:
    branches = tuple(sequence(f"b{i}", [Logs(f"in {i}", native), Logs(f"{i}")]) for i in range(3))
    choice = ConditionalThunk("conditional", NOWHERE, branches, ())
    device = Device(sequence("main", [Logs("before"), choice, Logs("after")]), np.array(selector))
    device.run()
    names = {number: thunk.name for number, thunk in enumerate(traverse(device.root))}
    want = ["before", f"in {branch}", f"{branch}", "after"]
    assert [names[n] for n in device.seen] == want


@pytest.mark.parametrize("truth", [True, False])
def test_a_predicate_chooses_the_first_branch_when_true(truth: bool) -> None:
    branches = (sequence("t", [Logs("yes")]), sequence("f", []))
    choice = ConditionalThunk("conditional", NOWHERE, branches, ())
    device = Device(sequence("main", [choice, Logs("after")]), np.array(truth))
    device.run()
    names = {number: thunk.name for number, thunk in enumerate(traverse(device.root))}
    assert [names[n] for n in device.seen] == (["yes", "after"] if truth else ["after"])


def test_an_error_names_the_thunk_and_the_sequence() -> None:
    device = Device(sequence("main", [Logs("a"), Logs("b"), Fails("bad"), Logs("c")]))
    with pytest.raises(ValueError, match="planted") as caught:
        device.run()
    assert caught.value.__notes__ == ["while running bad in main"]
    assert device.position[THUNK] == 3


def test_actions_in_order_are_native_where_all_are() -> None:
    device = Device(sequence("main", [Logs("a")]))
    one = prepare(Logs("a"), device)  # type: ignore[arg-type]
    both = in_order(one, NOTHING, one)
    assert isinstance(both, NativeAction)
    both()
    assert device.log[0] == 2
    mixed = in_order(one, lambda: None)
    assert not isinstance(mixed, NativeAction)
    mixed()
    assert device.log[0] == 3


def test_an_error_within_a_loop_names_all_that_it_is_in() -> None:
    condition = sequence("condition", [Logs("compare", limit=5)])
    loop = WhileThunk("while", condition, sequence("body", [Fails("bad")]), NOWHERE, ())
    device = Device(sequence("main", [loop]))
    with pytest.raises(ValueError, match="planted") as caught:
        device.run()
    notes = ["while running bad in body", "while running while in main"]
    assert caught.value.__notes__ == notes
